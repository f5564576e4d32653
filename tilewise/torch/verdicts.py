"""Stored verdicts: each kernel is timed once against PyTorch's own op, with cold weights.

Searches time kernels on operands in caches. In a model, the weights of other layers displace them,
and some kernels lose to PyTorch's there. Losers are left to PyTorch.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tilewise.kernels.problem import Conv2d, Problem, parse_problem
from tilewise.kernels.system.files import read_regular, write_whole
from tilewise.torch.kernels import Kernel, warn_once
from tilewise.torch.operators import cache_folder

TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
_TOLERANCES = {"f64": 1e-11, "f32": 1e-4, "bf16": 2e-2, "f16": 5e-3}
"""Of the norm of the difference: far above rounding, far below a wrong kernel."""
_COLD_BYTES, _MOST_COPIES = 48 << 20, 24
"""Of all weights between two uses of the same; above the L2 cache of any core."""
_ROUNDS, _ROUND_S = 11, 0.02
_ONEDNN = ("f32", "bf16")
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

Call = Callable[[], Any]


@dataclass(frozen=True)
class Verdict:
    """How a kernel compares with PyTorch's own op on this machine.

    Attributes:
        kernel_us, torch_us: times of a call.
        is_right: whether both have the same result within rounding.
    """

    kernel_us: float
    torch_us: float
    is_right: bool

    @property
    def wins(self) -> bool:
        """Return whether the kernel is to be used."""
        return self.is_right and self.kernel_us <= self.torch_us


def verdict(kernel: Kernel) -> Verdict:
    """Return the stored verdict of a kernel, or measure and store it."""
    path = cache_folder() / "verdicts.json"
    threads = torch.get_num_threads()
    key = f"{kernel.problem} {kernel.target} {kernel.sha256} torch={torch.__version__},{threads}"
    known = _stored(path).get(key)
    if known is None:
        with _disable_current_modes(), torch.inference_mode():
            known = asdict(_measure(parse_problem(kernel.problem), kernel.symbol))
        text = json.dumps({**_stored(path), key: known}, indent=1)
        write_whole(path, text.encode())
    return Verdict(**known)


def _stored(path: Path) -> dict[str, dict[str, Any]]:
    try:
        found = json.loads(read_regular(path))
        return {key: asdict(Verdict(**one)) for key, one in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        warn_once(f"verdicts {path}: {error}; kernels are timed again")
        return {}


def _measure(problem: Problem, symbol: str) -> Verdict:
    size = torch.Size(problem.operand_shapes["B"]).numel() * problem.element.bytes
    copies = max(2, min(_MOST_COPIES, _COLD_BYTES // size))
    operands = _operands(problem)
    weights = [_random(problem, "B") for _ in range(copies)]
    ours = [_kernel_call(problem, symbol, {**operands, "B": one}) for one in weights]
    got = ours[0]().double()
    expected = _torch_call(problem, {**operands, "B": weights[0]})().double()
    if not isinstance(problem, Conv2d):  # Inductor adds a residual where the result is read next
        operands.pop("add", None)
    theirs = [_torch_call(problem, {**operands, "B": one}) for one in weights]
    error = (got - expected.reshape(got.shape)).norm() / expected.norm().clamp_min(1e-30)
    is_right = bool(error <= _TOLERANCES[problem.dtype])
    kernel_s, torch_s = _in_turns(ours, theirs)
    return Verdict(1e6 * kernel_s, 1e6 * torch_s, is_right)


def _in_turns(*sides: list[Call]) -> Iterator[float]:
    """Yield seconds of a call of each side, of its fastest round: disturbances only add.

    A round calls all calls of a side one after the other, so that each finds its weights out of
    the caches.
    """
    passes = [max(1, int(_ROUND_S / max(_seconds(calls, 1) * len(calls), 1e-9))) for calls in sides]
    samples: list[list[float]] = [[] for _ in sides]
    for number in range(_ROUNDS):
        for side in range(len(sides)) if number % 2 else reversed(range(len(sides))):
            samples[side].append(_seconds(sides[side], passes[side]))
    yield from map(min, samples)


def _seconds(calls: list[Call], passes: int) -> float:
    """Return seconds of a call; of this thread where it is the only one."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    began = clock()
    for _ in range(passes):
        for call in calls:
            call()
    return (clock() - began) / passes / len(calls)


def _random(problem: Problem, operand: str) -> Any:
    shape = problem.operand_shapes["C" if operand == "add" else operand]
    own = torch.Generator().manual_seed(ord(operand[0]))  # the program's stays as it is
    return torch.randn(shape, generator=own).to(TYPES[problem.type_of(operand)])


def _operands(problem: Problem) -> dict[str, Any]:
    added = ("add",) if problem.accumulates else ()
    return {name: _random(problem, name) for name in ("A", *problem.extras, *added)}


def _kernel_call(problem: Problem, symbol: str, operands: dict[str, Any]) -> Call:
    b = operands["B"]
    if problem.has_constant_weights:
        b = torch.ops.tilewise.prepare(b, symbol)
    more, shape = (operands.get("bias"), operands.get("add")), problem.operand_shapes["C"]
    return partial(torch.ops.tilewise.call.default, operands["A"], b, *more, symbol, shape)


def _torch_call(problem: Problem, operands: dict[str, Any]) -> Call:
    """Return what frozen Inductor calls: packed weights in MKL or oneDNN, where it has them."""
    a, b, bias, add = *(operands[name] for name in "AB"), operands.get("bias"), operands.get("add")
    bias = None if bias is None else bias.to(b.dtype)
    if isinstance(problem, Conv2d):
        return _convolution(problem, a, b, bias, None if add is None else add.permute(0, 3, 1, 2))
    return _product(problem, a, b, bias, add)


def _finished(problem: Problem, call: Call, add: Any = None) -> Call:
    """Return a call whose addition and epilogue are ops of their own, in place."""
    if add is None and problem.epilogue == "none":
        return call

    def run() -> Any:
        out = call() if add is None else call().add_(add)
        return out if problem.epilogue == "none" else _IN_PLACE[problem.epilogue](out)

    return run


def _convolution(problem: Conv2d, a: Any, b: Any, bias: Any, add: Any) -> Call:
    image, filters = a.permute(0, 3, 1, 2), b.permute(3, 2, 0, 1)
    filters = filters.contiguous(memory_format=torch.channels_last)
    pad, stride, dilation = list(problem.pads.low), list(problem.strides), list(problem.dilations)
    if problem.dtype not in _ONEDNN or not torch.backends.mkldnn.is_available():
        convolve = partial(torch.nn.functional.conv2d, image, filters, bias, stride, pad, dilation)
        return _channels_last(_finished(problem, partial(convolve, groups=problem.groups), add))
    geometry = (pad, stride, dilation, problem.groups)
    ops, (name, *scalars) = torch.ops.mkldnn, _FUSED[problem.epilogue]
    if problem.has_constant_weights:
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


def _product(problem: Problem, a: Any, b: Any, bias: Any, add: Any) -> Call:
    if not problem.has_constant_weights:
        b = b.mT if problem.transpose_b else b
        product = torch.mm if a.dim() == 2 else torch.bmm
        plain = partial(product, a, b) if bias is None else partial(torch.addmm, bias, a, b)
        return _finished(problem, plain, add)
    rows, weights = a.shape[0], b.t().contiguous()
    if problem.dtype == "f32" and torch.backends.mkl.is_available():
        packed = torch.ops.mkl._mkl_reorder_linear_weight(weights, rows)
        call = torch.ops.mkl._mkl_linear.default
        return _finished(problem, partial(call, a, packed, weights, bias, rows), add)
    ops = torch.ops.mkldnn
    if problem.dtype == "bf16" and ops._is_mkldnn_bf16_supported():
        packed = ops._reorder_linear_weight(weights, rows)
        call = ops._linear_pointwise.default
        if add is None:
            return partial(call, a, packed, bias, *_FUSED[problem.epilogue])
        return _finished(problem, partial(call, a, packed, bias, *_FUSED["none"]), add)
    return _finished(problem, partial(torch.nn.functional.linear, a, weights, bias), add)
