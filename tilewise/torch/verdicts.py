"""Kernels against PyTorch's own ops, with cold weights."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tilewise.kernels.problem import Conv2d, Problem, ProblemRange
from tilewise.linked.kernels import Kernel
from tilewise.linked.verdicts import Call, Verdict, cold_copies, compare, stored_verdict

TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
_FUSED: dict[str, tuple[Any, ...]] = {
    "none": ("none", [], ""),
    "relu": ("relu", [], ""),
    "relu6": ("hardtanh", [0.0, 6.0], ""),
    "gelu": ("gelu", [], "none"),
    "gelu_tanh": ("gelu", [], "tanh"),
    "silu": ("swish", [], ""),
}
"""Epilogues as oneDNN's ops take them."""
_IN_PLACE: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu_,
    "relu6": lambda sums: sums.clamp_(0, 6),
    "gelu": torch.ops.aten.gelu_.default,
    "gelu_tanh": partial(torch.ops.aten.gelu_.default, approximate="tanh"),
    "silu": torch.ops.aten.silu_.default,
}


def verdict(kernel: Kernel) -> Verdict:
    """Return the stored verdict of a kernel, or measure and store it."""
    with _disable_current_modes(), torch.inference_mode():
        threads = torch.get_num_threads()
        return stored_verdict(kernel, f"torch={torch.__version__},{threads}", _measure)


def _measure(kernel: Kernel, problem: Problem) -> Verdict:
    operands, is_dynamic = _operands(problem), isinstance(kernel.wanted, ProblemRange)
    weights = [_random(problem, "B") for _ in range(cold_copies(problem))]
    ours = [_kernel_call(problem, kernel, {**operands, "B": one}) for one in weights]
    got = ours[0]().double()
    expected = _torch_call(problem, {**operands, "B": weights[0]}, is_dynamic)().double()
    if not isinstance(problem, Conv2d):  # Inductor adds a residual where the result is read next
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
        b = torch.ops.tilewise.prepare(b, kernel.symbol)
    more, sizes = (operands.get("bias"), operands.get("add")), kernel.sizes_of(vars(problem))
    given = (operands["A"], b, *more, kernel.symbol, problem.operand_shapes["C"], sizes)
    return partial(torch.ops.tilewise.call.default, *given)


def _torch_call(problem: Problem, operands: dict[str, Any], is_dynamic: bool = False) -> Call:
    """Return what frozen Inductor calls: packed weights in MKL or oneDNN, where it has them.

    Of dynamic sizes it packs no filters, and linears of f32 are oneDNN's, not MKL's.
    """
    a, b, bias, add = *(operands[name] for name in "AB"), operands.get("bias"), operands.get("add")
    bias = None if bias is None else bias.to(b.dtype)
    if isinstance(problem, Conv2d):
        add = None if add is None else add.permute(0, 3, 1, 2)
        return _convolution(problem, a, b, bias, add, is_dynamic)
    return _product(problem, a, b, bias, add, is_dynamic)


def _finished(problem: Problem, call: Call, add: Any = None) -> Call:
    """Return a call whose addition and epilogue are ops of their own, in place."""
    if add is None and problem.epilogue == "none":
        return call

    def run() -> Any:
        out = call() if add is None else call().add_(add)
        return out if problem.epilogue == "none" else _IN_PLACE[problem.epilogue](out)

    return run


def _has_onednn(problem: Problem) -> bool:
    """Return whether oneDNN has kernels of the type for this processor."""
    if not torch.backends.mkldnn.is_available():
        return False
    has_bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported
    return problem.dtype == "f32" or (problem.dtype == "bf16" and bool(has_bf16()))


def _convolution(problem: Conv2d, a: Any, b: Any, bias: Any, add: Any, is_dynamic: bool) -> Call:
    image, filters = a.permute(0, 3, 1, 2), b.permute(3, 2, 0, 1)
    filters = filters.contiguous(memory_format=torch.channels_last)
    pad, stride, dilation = list(problem.pads.low), list(problem.strides), list(problem.dilations)
    if not _has_onednn(problem):
        convolve = partial(torch.nn.functional.conv2d, image, filters, bias, stride, pad, dilation)
        return _channels_last(_finished(problem, partial(convolve, groups=problem.groups), add))
    geometry = (pad, stride, dilation, problem.groups)
    ops, (name, *scalars) = torch.ops.mkldnn, _FUSED[problem.epilogue]
    if problem.has_constant_weights and not is_dynamic:
        filters = ops._reorder_convolution_weight(filters, *geometry, list(image.shape))
    if add is None:
        call = ops._convolution_pointwise.default
        return _channels_last(partial(call, image, filters, bias, *geometry, name, *scalars))
    call = partial(ops._convolution_pointwise.binary, image, add, filters, bias, *geometry)
    if name == "relu":
        return _channels_last(partial(call, "add", 1.0, name, *scalars))
    return _channels_last(_finished(problem, partial(call, "add", 1.0, None, [], None)))


def _channels_last(call: Call) -> Call:
    return lambda: call().permute(0, 2, 3, 1)


def _product(problem: Problem, a: Any, b: Any, bias: Any, add: Any, is_dynamic: bool) -> Call:
    if not problem.has_constant_weights:
        b = b.mT if problem.transpose_b else b
        product = torch.mm if a.dim() == 2 else torch.bmm
        plain = partial(product, a, b) if bias is None else partial(torch.addmm, bias, a, b)
        return _finished(problem, plain, add)
    rows, weights = a.shape[0], b.t().contiguous()
    is_f32 = problem.dtype == "f32" and torch.backends.mkl.is_available()
    if is_f32 and not is_dynamic:
        packed = torch.ops.mkl._mkl_reorder_linear_weight(weights, rows)
        call = torch.ops.mkl._mkl_linear.default
        return _finished(problem, partial(call, a, packed, weights, bias, rows), add)
    ops = torch.ops.mkldnn
    if is_f32 or (problem.dtype == "bf16" and _has_onednn(problem)):
        packed = ops._reorder_linear_weight(weights, rows)
        call = ops._linear_pointwise.default
        if add is None:
            return partial(call, a, packed, bias, *_FUSED[problem.epilogue])
        return _finished(problem, partial(call, a, packed, bias, *_FUSED["none"]), add)
    return _finished(problem, partial(torch.nn.functional.linear, a, weights, bias), add)
