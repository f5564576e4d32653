"""Non-GEMM ops as actions: loops with a body, pads, windows, sums."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isfinite, prod
from typing import Any

from numpy.typing import NDArray

from tilewise.kernels.mlir.frontend import program
from tilewise.kernels.mlir.frontend.child.bodies import (
    HUGE_FLOAT,
    Expr,
    body_of,
    body_of_tensors,
    parts,
)
from tilewise.kernels.mlir.frontend.child.constants import Constants, padding
from tilewise.kernels.mlir.frontend.child.dataflow import OF_A_PLACE, Tensors, kind_of
from tilewise.kernels.mlir.frontend.child.values import (
    Number,
    Structured,
    element,
    is_permutation,
    is_pool,
    rank,
    splat,
    static_shape,
    structured,
)
from tilewise.kernels.mlir.frontend.nest import Axis, NestRefusedError

_COMBINED: dict[str, program.Combine] = {
    "arith.addf": "sum",
    "arith.maximumf": "max",
    "arith.maxnumf": "maxnum",
    "arith.minimumf": "min",
    "arith.minnumf": "minnum",
}
_NEUTRAL = {"sum": (0.0, 0.0), "max": (-inf, -HUGE_FLOAT), "min": (HUGE_FLOAT, inf)}
"""From where to where numbers are that change no result of a reduction."""
_FLOATS = ("f32", "bf16")
_CASTS = ("arith.truncf", "arith.extf")
_POWERS = ("math.powf", "math.fpowi")
_MOST_POWER = 4
_KNOWN_TYPES = (*_FLOATS, "i1")
Maps = tuple[tuple[Axis, ...], ...]
Array = NDArray[Any]
Held = tuple[str, str, Array]
"""Role, element type and values of a constant."""


@dataclass(frozen=True)
class _Nest:
    """Maps of the operands and of the result, in loops of which the last ones reduce."""

    extents: tuple[int, ...]
    reduced: int
    maps: Maps


def loops_of(op: Any, tensors: Tensors, constants: Constants) -> tuple[program.Loops, list[Held]]:
    """Return an op as loops, and its constants; a broadcast one has axes of one element."""
    seen = structured(op)
    nest, body, combine, start = _of_tensors(op) if seen is None else _of_linalg(seen)
    writer = _Writer(op, tensors, constants, nest)
    writer.put(body)
    static_shape(op.results[0])
    loops = program.Loops(
        nest.extents, nest.reduced, combine, tuple(writer.accesses), tuple(writer.body),
        _float(op.results[0]), start,
    )  # fmt: skip
    return loops, writer.held


def _of_linalg(op: Structured) -> tuple[_Nest, Expr, program.Combine, float | None]:
    nest, body = _nest(op), body_of(op)
    _check_types(view.operation for view in op.body.operations)
    return (nest, *_reduced(op, body)) if nest.reduced else (nest, body, "", None)


def _of_tensors(op: Any) -> tuple[_Nest, Expr, program.Combine, float | None]:
    """Return an arith or math op on whole tensors as loops."""
    if kind_of(op) != "elementwise":
        raise NestRefusedError("is not supported in native networks")
    shape = static_shape(op.results[0])
    if any(tuple(value.type.shape) != shape for value in op.operands):
        raise NestRefusedError("works on tensors of several shapes")
    _check_types([op])
    body = body_of_tensors(op)
    axes: tuple[Axis, ...] = tuple(((i, 1),) for i in range(len(shape)))
    maps = (axes,) * (len(op.operands) + 1)
    return _Nest(shape, 0, maps), body, "", None


def _nest(op: Structured) -> _Nest:
    """Return the nest of an op, with loops in the order of the result's axes."""
    maps = [axes for axes in op.maps if axes is not None]
    if len(maps) != len(op.maps):
        raise NestRefusedError("reads an operand at an index that is not a sum of loop indices")
    values = (*op.inputs, op.init)
    sizes: dict[int, int] = {}
    for axes, value in zip(maps, values, strict=True):
        for axis, size in zip(axes, static_shape(value), strict=True):
            if len(axis) > 1 or any(step != 1 for _, step in axis):
                raise NestRefusedError("reads an operand at sums or multiples of loop indices")
            if axis and sizes.setdefault(axis[0][0], size) != size:
                raise NestRefusedError("reads only a part of an operand")
    written = [axis[0][0] for axis in maps[-1] if axis]
    if len(set(written)) != len(written):
        raise NestRefusedError("writes its result along a diagonal")
    order = [*written, *sorted(set(sizes) - set(written))]
    place = {dim: i for i, dim in enumerate(order)}
    return _Nest(
        tuple(sizes[dim] for dim in order),
        len(order) - len(written),
        tuple(tuple(tuple((place[dim], 1) for dim, _ in axis) for axis in axes) for axes in maps),
    )


def _reduced(op: Structured, body: Expr) -> tuple[Expr, program.Combine, float | None]:
    """Return what an op reduces, how, and the finite number that it starts from, if relevant."""
    out = Expr("arg", (), len(op.inputs))
    combine = _COMBINED.get(body.name)
    if combine is None or out not in body.of:
        raise NestRefusedError("reduces by an operation other than sum, maximum and minimum")
    start = splat(op.init)
    if start is None or not _is_neutral(start, combine):
        raise NestRefusedError(f"starts its {combine} from {start}")
    first, second = body.of
    taken = second if first == out else first
    if out in parts(taken):
        raise NestRefusedError(f"reads its intermediate result in the {combine}")
    return taken, combine, float(start) if isfinite(start) and combine != "sum" else None


def _is_neutral(start: Number, combine: str) -> bool:
    least, most = _NEUTRAL[combine[:3]]
    return least <= start <= most


def _check_types(ops: Iterable[Any]) -> None:
    for op in ops:
        if op.name in _CASTS and splat(op.operands[0]) is None:
            _float(op.operands[0])
        for value in op.results:
            kind = element(value)
            is_cast = op.name in _CASTS or op.name in ("arith.constant", "linalg.yield")
            if kind not in _KNOWN_TYPES or (kind == "bf16" and not is_cast):
                raise NestRefusedError(
                    f"computes in {kind}; native networks compute in f32 and cast bf16"
                )


def _float(value: Any) -> str:
    kind = element(value)
    if kind not in _FLOATS:
        raise NestRefusedError(f"works on {kind}; native networks support f32 and bf16")
    return kind


class _Writer:
    """Writes an expression as instructions, each subexpression once."""

    def __init__(self, op: Any, tensors: Tensors, constants: Constants, nest: _Nest) -> None:
        self._op, self._tensors, self._constants, self._nest = op, tensors, constants, nest
        self.accesses: list[program.Access] = []
        self.body: list[program.ScalarOp] = []
        self.held: list[Held] = []
        self._done: dict[int, int] = {}
        self._read: dict[int, int] = {}

    def put(self, expr: Expr) -> int:
        """Return the number of the instruction that computes an expression."""
        if id(expr) not in self._done:
            self._done[id(expr)] = self._put(expr)
        return self._done[id(expr)]

    def _put(self, expr: Expr) -> int:
        if expr.name == "arg":
            return self._argument(int(expr.value))
        if expr.name == "const":
            return self._add(program.ScalarOp("number", (), float(expr.value)))
        if expr.name in _POWERS:
            return self._power(*expr.of)
        if expr.name not in program.OPERATIONS:
            what = "an unknown function" if expr.name == "other" else expr.name
            raise NestRefusedError(f"has {what}, which native networks do not support")
        of = tuple(map(self.put, expr.of))
        return self._add(program.ScalarOp(program.OPERATIONS[expr.name], of, float(expr.value)))

    def _power(self, base: Expr, exponent: Expr) -> int:
        """Write a small whole power as products."""
        if exponent.name != "const" or exponent.value not in range(1, _MOST_POWER + 1):
            raise NestRefusedError(f"has a power other than 1 to {_MOST_POWER}")
        value = made = self.put(base)
        for _ in range(int(exponent.value) - 1):
            made = self._add(program.ScalarOp("multiply", (made, value)))
        return made

    def _add(self, instruction: program.ScalarOp) -> int:
        self.body.append(instruction)
        return len(self.body) - 1

    def _argument(self, number: int) -> int:
        if number not in self._read:
            self.accesses.append(self._access(number))
            self._read[number] = self._add(program.ScalarOp("read", (), len(self.accesses) - 1))
        return self._read[number]

    def _access(self, number: int) -> program.Access:
        value = self._op.operands[number]
        if not rank(value):
            raise NestRefusedError("reads a scalar that is not a constant")
        dtype = _float(value)
        if not self._tensors.is_activation(value):
            role, values = f"operand {number}", _without_repeats(self._constants.value(value))
            self.held.append((role, dtype, values))
            return program.Access(None, role, dtype, self._steps(number, values.shape))
        place = sum(self._tensors.is_activation(one) for one in list(self._op.operands)[:number])
        return program.Access(place, "", dtype, self._steps(number, static_shape(value)))

    def _steps(self, number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the elements from one index of each loop to the next."""
        steps = [0] * len(self._nest.extents)
        for i, axis in enumerate(self._nest.maps[number]):
            if axis and shape[i] > 1:
                steps[axis[0][0]] += prod(shape[i + 1 :])
        return tuple(steps)


def _without_repeats(values: Array) -> Array:
    """Return an array with one element along each broadcast axis."""
    return values[tuple(slice(0, 1) if step == 0 else slice(None) for step in values.strides)]


_WINDOWS: dict[str, program.WindowKind] = {"max": "max", "maxnum": "max", "sum": "sum"}


def action_of(op: Any) -> program.Action:
    """Return what an op does, or an action that is refused with a reason."""
    try:
        return _action(op)
    except NestRefusedError as refusal:
        return program.Action(refused=str(refusal))


def _action(op: Any) -> program.Action:
    if op.name == "tensor.pad":
        _check_f32(op.operands[0])
        static_shape(op.operands[0])
        return program.Action(pad=padding(op))
    seen = structured(op)
    if seen is None or kind_of(op) == "elementwise":
        raise NestRefusedError("is not supported in native networks")
    for view in seen.body.operations:
        if view.operation.name in OF_A_PLACE:
            raise NestRefusedError(
                f"has {view.operation.name} in its body, which native networks do not support"
            )
    if is_pool(seen):
        return program.Action(window=_window(seen))
    return program.Action(sum=_sum(seen))


def _window(op: Structured) -> program.PoolWindow:
    _check_f32(op.inputs[0])
    kind = _WINDOWS.get(_combined(op))
    if kind is None:
        raise NestRefusedError("takes neither the maximum nor the sum of a window")
    read, window, written = op.maps
    if read is None or window is None or written is None:
        raise NestRefusedError("reads an operand at an index that is not a sum of loop indices")
    taps = zip(window, static_shape(op.inputs[1]), strict=True)
    within = {axis[0][0]: size for axis, size in taps if axis}
    outers, *moved = zip(*(_moved(axis, within) for axis in read), strict=True)
    if list(outers) != [axis[0][0] if len(axis) == 1 else None for axis in written]:
        raise NestRefusedError("writes its result in another order of axes")
    return program.PoolWindow(kind, *moved)


def _moved(axis: Axis, within: dict[int, int]) -> tuple[int, int, int, int]:
    """Return the result's dim of an axis; size, stride and dilation of the window."""
    outer = [term for term in axis if term[0] not in within]
    inner = [term for term in axis if term[0] in within]
    if len(outer) != 1 or len(inner) > 1:
        raise NestRefusedError("reads a window along no axis of its result")
    dim, stride = outer[0]
    return (dim, within[inner[0][0]], stride, inner[0][1]) if inner else (dim, 1, stride, 1)


def _sum(op: Structured) -> program.Sum:
    read, written = op.maps[0], op.maps[-1]
    if len(op.inputs) != 1 or read is None or not is_permutation(read):
        raise NestRefusedError("is not supported in native networks")
    _check_f32(op.inputs[0])
    if _combined(op) != "sum":
        raise NestRefusedError("reduces by an operation other than a sum")
    dims = [axis[0][0] for axis in read]
    kept = [axis[0][0] for axis in written or () if axis]
    if written is None or len(kept) != len(written) or kept != sorted(kept, key=dims.index):
        raise NestRefusedError("writes its result in another order of axes")
    return program.Sum(tuple(i for i, dim in enumerate(dims) if dim not in kept))


def _combined(op: Structured) -> program.Combine:
    """Return how an op reduces its first input; empty if its body does more."""
    taken, combine, _ = _reduced(op, body_of(op))
    return combine if taken == Expr("arg", (), 0) else ""


def _check_f32(value: Any) -> None:
    if element(value) != "f32":
        raise NestRefusedError(f"works on {element(value)}; native networks support f32")
