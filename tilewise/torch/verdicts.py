"""Kernels against PyTorch's own ops, with cold weights."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tilewise.kernels.problem import Conv2d, Matmul, Problem, ProblemRange
from tilewise.linked.kernels import Kernel
from tilewise.linked.verdicts import Call, Verdict, cold_copies, compare, stored_verdict
from tilewise.search.peers.onednn import (
    finish,
    fused,
    geometry_of,
    has_kernels,
    linear,
    plain,
    product,
)
from tilewise.torch.operators import load_operators

TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}


def verdict(kernel: Kernel) -> Verdict:
    """Return the stored verdict of a kernel, or measure and store it."""
    with _disable_current_modes(), torch.inference_mode():
        caller = Path(load_operators()._name).stem  # of the release of torch
        threads = torch.get_num_threads()
        return stored_verdict(kernel, f"torch={caller},threads={threads}", _measure)


def _measure(kernel: Kernel, problem: Problem) -> Verdict:
    operands, is_dynamic = _operands(problem), isinstance(kernel.wanted, ProblemRange)
    weights = [_random(problem, "B") for _ in range(cold_copies(problem))]
    ours = [_kernel_call(problem, kernel, {**operands, "B": one}) for one in weights]
    got = ours[0]().double()
    expected = _torch_call(problem, {**operands, "B": weights[0]}, is_dynamic)().double()
    if isinstance(problem, Matmul):  # Inductor adds a residual where the result is read next
        operands.pop("add", None)
    theirs = [_torch_call(problem, {**operands, "B": one}, is_dynamic) for one in weights]
    error = (got - expected.reshape(got.shape)).norm() / expected.norm().clamp_min(1e-30)
    return compare(problem, float(error), ours, theirs, torch.get_num_threads())


def _random(problem: Problem, operand: str) -> Any:
    shape = problem.operand_shapes["C" if operand == "add" else operand]
    own = torch.Generator().manual_seed(ord(operand[0]))  # the program's stays as it is
    return torch.randn(shape, generator=own).to(TYPES[problem.type_of(operand)])


def _operands(problem: Problem) -> dict[str, Any]:
    added = ("add",) if problem.accumulates else ()
    return {name: _random(problem, name) for name in ("A", *problem.extras, *added)}


def _kernel_call(problem: Problem, kernel: Kernel, operands: dict[str, Any]) -> Call:
    b = operands["B"]
    if problem.has_constant_weights:
        b = torch.ops.tilewise.prepare(b, kernel.name)
    given = (operands["A"], b, operands.get("bias"), operands.get("add"), kernel.name)
    sizes = kernel.sizes_of(vars(problem))
    more = (problem.operand_shapes["C"], sizes) if sizes else ()
    return partial(torch.ops.tilewise.call.default, *given, *more)


def _torch_call(problem: Problem, operands: dict[str, Any], is_dynamic: bool = False) -> Call:
    """Return what frozen Inductor calls: packed weights in MKL or oneDNN, where it has them.

    Of dynamic sizes it packs no filters, and linears of f32 are oneDNN's, not MKL's.
    """
    a, b, bias, add = *(operands[name] for name in "AB"), operands.get("bias"), operands.get("add")
    bias = None if bias is None else bias.to(b.dtype)
    if isinstance(problem, Conv2d):
        call = _convolution(problem, a, b, bias, add, is_dynamic)
        return lambda: call().permute(0, 2, 3, 1)
    assert isinstance(problem, Matmul)
    problem = replace(problem, init="zero", add=add is not None)
    c, end = a.new_empty(problem.operand_shapes["C"]), finish(problem, add)
    if not problem.has_constant_weights:
        return product(problem, a, b.mT if problem.transpose_b else b, c, bias, end)
    ops, rows, weights = torch.ops, a.shape[0], b.mT.contiguous()
    has_mkl = torch.backends.mkl.is_available()
    if problem.dtype == "f32" and has_mkl and not is_dynamic:
        packed = ops.mkl._mkl_reorder_linear_weight(weights, rows)
        multiply = partial(ops.mkl._mkl_linear.default, a, packed, weights, bias, rows)
    elif has_kernels(problem) and (problem.dtype != "f32" or has_mkl):
        packed = ops.mkldnn._reorder_linear_weight(weights, rows)
        return linear(problem, a, packed, c, bias, end)
    else:
        multiply = partial(torch.nn.functional.linear, a, weights, bias)
    return lambda: end(multiply())


def _convolution(problem: Conv2d, a: Any, b: Any, bias: Any, add: Any, is_dynamic: bool) -> Call:
    image, filters = a.permute(0, 3, 1, 2), b.permute(3, 2, 0, 1)
    filters = filters.contiguous(memory_format=torch.channels_last)
    add = None if add is None else add.permute(0, 3, 1, 2)
    end, sizes, ops = finish(problem, add), geometry_of(problem), torch.ops.mkldnn
    if not has_kernels(problem):
        return plain(problem, image, filters, bias, None, end)
    if problem.has_constant_weights and not is_dynamic:
        filters = ops._reorder_convolution_weight(filters, *sizes, list(image.shape))
    if add is None:
        return fused(problem, image, filters, bias, None, end)
    call = partial(ops._convolution_pointwise.binary, image, add, filters, bias, *sizes, "add", 1.0)
    if problem.epilogue == "relu":
        return partial(call, "relu", [], "")
    end = finish(problem, None)
    return lambda: end(call(None, [], None))
