"""What an op that is no contraction does, in terms of few kinds of passes over memory."""

from math import inf
from typing import Any

from tilewise.kernels.mlir.frontend.child.bodies import (
    HUGE_FLOAT,
    Expr,
    applied,
    body_of,
    steps_on,
)
from tilewise.kernels.mlir.frontend.child.dataflow.kinds import (
    OF_A_PLACE,
    kind_of,
    reads_in_place,
)
from tilewise.kernels.mlir.frontend.child.structured import (
    Structured,
    element,
    rank,
    static_shape,
    structured,
)
from tilewise.kernels.mlir.frontend.child.values import integers, is_constant, splat
from tilewise.kernels.mlir.frontend.nest import Axis, RefusedError
from tilewise.kernels.mlir.frontend.program import Action, Elements, Pad, Sum, Window, WindowKind

_OF_BODY: dict[str, WindowKind] = {
    "arith.maximumf": "max", "arith.maxnumf": "max", "arith.addf": "sum",
}  # fmt: skip
_NUMBERS = {"arith.mulf": "multiply", "arith.divf": "divide"}


def action_of(op: Any) -> Action:
    """What an op does; refused, with a reason, if it is none of the passes here."""
    try:
        return _action(op)
    except RefusedError as refusal:
        return Action(refused=str(refusal))


def _action(op: Any) -> Action:
    if op.name == "tensor.pad":
        return Action(pad=_pad(op))
    if kind_of(op) == "elementwise":
        return Action(elements=_elements(op))
    seen = structured(op)
    if seen is None:
        raise RefusedError("is no op that is run here")
    for view in seen.body.operations:
        if view.operation.name in OF_A_PLACE:
            raise RefusedError(f"has {view.operation.name} in its body, which is not run here")
    if _moves_window(seen):
        return Action(window=_window(seen))
    return Action(sum=_sum(seen))


def _pad(op: Any) -> Pad:
    _check_f32(op.operands[0])
    static_shape(op.operands[0])
    if len(op.operands) != 1:
        raise RefusedError("pads by sizes that are not static")
    block = op.regions[0].blocks[0]
    yielded = block.operations[len(block.operations) - 1].operation
    value = splat(yielded.operands[0])
    if value is None:
        raise RefusedError("pads with more than one number")
    low, high = (integers(op.attributes[name]) for name in ("static_low", "static_high"))
    if min(*low, *high) < 0:
        raise RefusedError("pads by less than nothing")
    return Pad(tuple(low), tuple(high), float(value))


def _moves_window(op: Structured) -> bool:
    """Whether an op reads an input at sums of two dims, the second of which a window has."""
    first = op.maps[0]
    return len(op.inputs) == 2 and first is not None and any(len(axis) == 2 for axis in first)


def _window(op: Structured) -> Window:
    _check_f32(op.inputs[0])
    kind = _OF_BODY.get(_combined(op, 2))
    if kind is None:
        raise RefusedError("takes neither the maximum nor the sum of a window")
    _check_start(op, kind)
    read, window, written = op.maps
    if read is None or window is None or written is None:
        raise RefusedError("reads an operand at an index that is no sum of loop indices")
    taps = zip(window, static_shape(op.inputs[1]), strict=True)
    within = {axis[0][0]: size for axis, size in taps if axis}
    axes = [_moved(axis, within) for axis in read]
    if [outer for outer, *_ in axes] != [
        axis[0][0] if len(axis) == 1 else None for axis in written
    ]:
        raise RefusedError("writes its result in another order of axes")
    return Window(kind, tuple(one[1] for one in axes), tuple(one[2] for one in axes),
                  tuple(one[3] for one in axes))  # fmt: skip


def _moved(axis: Axis, within: dict[int, int]) -> tuple[int, int, int, int]:
    """The dim that an axis has in the result; size, stride and dilation of the window."""
    outer = [term for term in axis if term[0] not in within]
    inner = [term for term in axis if term[0] in within]
    if len(outer) != 1 or len(inner) > 1:
        raise RefusedError("reads a window along no axis of its result")
    dim, stride = outer[0]
    return (dim, within[inner[0][0]], stride, inner[0][1]) if inner else (dim, 1, stride, 1)


def _sum(op: Structured) -> Sum:
    if len(op.inputs) != 1 or not op.is_identity_of_loops(0):
        raise RefusedError("is no op that is run here")
    _check_f32(op.inputs[0])
    if _OF_BODY.get(_combined(op, 1)) != "sum":
        raise RefusedError("reduces by something else than a sum")
    _check_start(op, "sum")
    read, written = op.maps
    assert read is not None
    dims = [axis[0][0] for axis in read]
    kept = [axis[0][0] for axis in written or () if axis]
    if written is None or len(kept) != len(written) or kept != sorted(kept, key=dims.index):
        raise RefusedError("writes its result in another order of axes")
    return Sum(tuple(i for i, dim in enumerate(dims) if dim not in kept))


def _combined(op: Structured, out: int) -> str:
    """How a body joins the first input and the result so far; empty for any other body."""
    body = body_of(op)
    pair = {Expr("arg", (), 0), Expr("arg", (), out)}
    return body.name if len(body.of) == 2 and set(body.of) == pair else ""


def _check_start(op: Structured, kind: WindowKind) -> None:
    start = splat(op.init)
    if start is None or (start != 0 if kind == "sum" else start > -HUGE_FLOAT):
        raise RefusedError(f"starts the {kind} of a window from {start}")


def _elements(op: Any) -> Elements:
    static_shape(op.results[0])
    if not all(_is_read_in_place(op, i) for i in range(len(op.operands))):
        raise RefusedError("repeats an operand, or has a constant one")
    body, wide = expression(op), element(op.results[0])
    inputs = [value for value in op.operands if rank(value) and splat(value) is None]
    cast = {"arith.truncf": ("f32", "bf16"), "arith.extf": ("bf16", "f32")}.get(body.name)
    if cast == (element(inputs[0]), wide):
        return Elements("narrow" if wide == "bf16" else "widen")
    for value in (*inputs, op.results[0]):
        _check_f32(value)
    if body.name in _NUMBERS:
        return _by_number(body)
    return _by_steps(body)


def _is_read_in_place(op: Any, number: int) -> bool:
    """Whether an operand is a number, or an activation that is read where is written."""
    seen, value = structured(op), op.operands[number]
    if seen is not None and number == len(seen.inputs):
        return True
    if not rank(value) or splat(value) is not None:
        return splat(value) is not None
    return reads_in_place(op, number) and not is_constant(value)


def expression(op: Any) -> Expr:
    """What an elementwise op computes of its operands."""
    seen = structured(op)
    if seen is not None:
        return body_of(seen)
    numbers = [splat(one) for one in op.operands]
    return applied(op, tuple(
        Expr("arg", (), i) if number is None else Expr("const", (), number)
        for i, number in enumerate(numbers)
    ))  # fmt: skip


def _by_number(body: Expr) -> Elements:
    first, second = body.of
    if first.name == "const" and body.name == "arith.mulf":
        first, second = second, first
    if first.name != "arg" or second.name != "const" or abs(second.value) in (0, inf):
        raise RefusedError("multiplies tensors, or divides by one")
    return Elements("multiply" if body.name == "arith.mulf" else "divide", float(second.value))


def _by_steps(body: Expr) -> Elements:
    for this in (0, 1):
        steps = steps_on(body, this)
        if steps is not None:
            break
    else:
        raise RefusedError("computes more than a sum, relu or a product with a number")
    names = [step.name for step in steps]
    added = [step for step in steps if step.name == "add"]
    if any(step.argument is None for step in added):
        raise RefusedError("adds a number")
    if names not in (["add"], ["add", "relu"], ["add", "relu", "ceiling"], ["relu"],
                     ["relu", "ceiling"]):  # fmt: skip
        raise RefusedError("computes more than a sum, relu or a product with a number")
    return Elements("add" if added else "clamp", 1.0, "relu" in names, "ceiling" in names)


def _check_f32(value: Any) -> None:
    if element(value) != "f32":
        raise RefusedError(f"works on {element(value)}; f32 is run here")
