"""The ops around a contraction that may be included in its problem.

Before: transposes, broadcasts, zeros around an image. After: transpose, bias, addition, an epilogue
in one op or several, and a rounding of the sums to the type of the factors or a like one. Only
values with no other use are included, and copies of constants. Views are followed together with the
axes along which a bias may vary.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewise.kernels.mlir.dialects import children
from tilewise.kernels.mlir.frontend.child import values
from tilewise.kernels.mlir.frontend.child.bodies import (
    FUNCTIONS,
    ROUNDING,
    SMOOTH,
    Expr,
    ResultStep,
    body_of,
    body_of_tensors,
    composed,
    function_of,
    steps_on,
)
from tilewise.kernels.mlir.frontend.nest import NestRefusedError
from tilewise.kernels.problem import SIGNIFICAND_BITS
from tilewise.kernels.problem.spatial import Pads

NO_PADS = Pads((0, 0, 0, 0))


@dataclass(frozen=True)
class Before:
    """What precedes an input and is included: a transposition, or a broadcast if `is_repeated`.

    `axes` are those of the input, as its source has them; None for the input itself. Zeros around
    the transposed input are in between if `is_padded`.
    """

    axes: tuple[int, ...] | None = None
    is_repeated: bool = False
    is_padded: bool = False

    @property
    def is_transposed(self) -> bool:
        """Whether a transposition is included."""
        return self.axes is not None and not self.is_repeated


def befores(value: Any, *, may_repeat: bool) -> list[Before]:
    """Return the alternatives to include before an input, also nothing."""
    found, op = [Before()], _maker(value)
    is_padded = op is not None and pads_zeros(op) is not None
    copy = _maker(op.operands[0]) if op is not None and is_padded else op
    order = None if copy is None else _transposition(copy)
    if order is not None:
        axes = tuple(order.index(axis) for axis in range(len(order)))
        found.append(Before(axes, is_padded=is_padded))
    repeated = _repeated_axes(op) if op is not None and may_repeat else None
    return found if repeated is None else [*found, Before(repeated, is_repeated=True)]


def _maker(value: Any) -> Any | None:
    """Return the op that makes a constant, or a value with one use; None for other values."""
    is_alone = values.only_user(value) is not None or values.is_constant(value)
    return values.owner(value) if is_alone else None


def _repeated_axes(op: Any) -> tuple[int, ...] | None:
    """Return the axes of a result that its source has, in order; None if it is not broadcast."""
    seen = values.copy_of(op)
    if seen is None:
        return None
    read, written = seen.maps
    if read is None or written is None or not 0 < len(read) < len(written):
        return None
    if any(len(axis) != 1 or axis[0][1] != 1 or axis not in written for axis in read):
        return None
    axes = tuple(written.index(axis) for axis in read)
    return axes if list(axes) == sorted(set(axes)) else None


def zeros_around(
    image: Any,
    spatial: Sequence[int | None],
    *,
    transposes: bool,
    reshapes: bool,
    zero: values.Number = 0,
) -> Pads:
    """Return the zeros, or zero points, that pad an image around both windows alone; else none.

    `spatial` are the axes of the windows, None for a window of one. `transposes` and `reshapes` say
    whether these may stand between the padding and the convolution.
    """
    value, at = image, values.long_axes(image)
    for _ in range(values.MOST_STEPS):
        op = values.owner(value)
        if op is None or values.only_user(value) is None:
            break
        if op.name in ("tensor.pad", "tensor.insert_slice"):
            pads = (pads_zeros if op.name == "tensor.pad" else _inserted)(op, zero)
            axes = [None if axis is None or (axis,) not in at else at.index((axis,))
                    for axis in spatial]  # fmt: skip
            return NO_PADS if pads is None else _padding(*pads, axes)
        before = values.axes_before(op, at)
        if before is None or not (reshapes if op.name in values.RESHAPES else transposes):
            break
        value, at, transposes = op.operands[0], before, transposes and op.name in values.RESHAPES
    return NO_PADS


def pads_zeros(op: Any, zero: values.Number = 0) -> tuple[list[int], list[int]] | None:
    """Return the padding before and after each axis; None if unknown or not of this number."""
    if op.name != "tensor.pad":
        return None
    low, high = values.static_numbers(op, "low", "high")
    if any(one < 0 for one in (*low, *high)):  # dynamic ones, too
        return None
    *_, end = children(op)
    return (low, high) if values.splat(end.operands[0]) == zero else None


def unpadded(value: Any) -> tuple[Any, list[int], list[int]]:
    """Return what zeros are added around, and how many before and after each axis."""
    op, none = values.owner(value), [0] * values.rank(value)
    pads = None if op is None else pads_zeros(op)
    return (value, none, none) if op is None or pads is None else (op.operands[0], *pads)


def _inserted(op: Any, zero: values.Number) -> tuple[list[int], list[int]] | None:
    """Return the same for a tensor that is inserted into zeros."""
    inner, outer = (one.type for one in list(op.operands)[:2])
    offsets, steps = values.static_numbers(op, "offsets", "strides")
    if zero or values.splat(op.operands[1]) != 0 or any(step != 1 for step in steps):
        return None
    is_static = inner.has_static_shape and outer.has_static_shape
    if inner.rank != outer.rank or not is_static or any(one < 0 for one in offsets):
        return None
    sizes = zip(outer.shape, inner.shape, offsets, strict=True)
    return offsets, [whole - part - before for whole, part, before in sizes]


def _padding(low: list[int], high: list[int], at: Sequence[int | None]) -> Pads:
    """Return the padding along the windows, if nothing else is padded; a window of one has none."""
    if any(low[i] or high[i] for i in range(len(low)) if i not in at):
        return NO_PADS
    return Pads(0 if axis is None else side[axis] for side in (low, high) for axis in at)


@dataclass(frozen=True)
class Ending:
    """What follows an op and is included.

    Attributes:
        has_bias, epilogue: applied in this order.
        rounds_to: the type that results are rounded to in the end; empty for that of the sums.
        axes: the final order of the result's axes; None if unchanged.
        value: the final result.
        added: a tensor of the result's shape, such as a residual, added before the epilogue.
        bias: a tensor with an element per column; None if the bias is `number`.
        repeated: values that only broadcast the bias.
    """

    value: Any
    has_bias: bool = False
    epilogue: str = "none"
    rounds_to: str = ""
    axes: tuple[int, ...] | None = None
    added: Any = None
    bias: Any = None
    number: values.Number = 0
    repeated: tuple[Any, ...] = ()


@dataclass(frozen=True)
class EndingState:
    """What is included so far, and may be.

    Attributes:
        ending: at first the result, with a bias if its sums start from one.
        columns: axes longer than one along which a bias may vary, in the problem's order.
        summed: the op if its sums start from what is added, which no transposition moves.
        transposes: whether a transposition is included.
        without: steps to leave out, of `relu`, `addition`, `bias` and `rounding`.
    """

    ending: Ending
    columns: values.Axes
    summed: values.Structured | None
    transposes: bool
    without: Collection[str]
    is_reshaped: bool = False


def following_transpose(value: Any) -> tuple[int, ...] | None:
    """Return the axis order of a transposition after elementwise ops on a result."""
    for _ in range(values.MOST_STEPS):
        user = values.only_user(value)
        if user is None:
            return None
        order = _transposition(user)
        if order is not None:
            return order
        if _steps(user, value) is None:
            return None
        value = user.results[0]
    return None


def ending_of(state: EndingState) -> Ending:
    """Return what may be included after a result."""
    for _ in range(values.MOST_STEPS):
        user = values.only_user(state.ending.value)
        following = None if user is None else _after(state, user)
        following = following or _after_several(state)
        if following is None:
            return state.ending
        state = following
    return state.ending


def _after(state: EndingState, user: Any) -> EndingState | None:
    if user.name in values.RESHAPES:
        columns = _reshaped(user, state.columns)
        if columns is None:
            return None
        ending = replace(state.ending, value=user.results[0])
        return replace(state, ending=ending, columns=columns, is_reshaped=True)
    order = _transposition(user)
    if order is not None:
        if not state.transposes or state.is_reshaped or state.ending.axes is not None:
            return None
        ending = replace(state.ending, value=user.results[0], axes=order)
        columns = tuple(order.index(one) for one in state.columns)
        return replace(state, ending=ending, columns=columns)
    taken = _taken_in(state, user)
    return None if taken is None else replace(state, ending=taken)


def _taken_in(state: EndingState, user: Any) -> Ending | None:
    """Return the ending with an elementwise op; None if a problem cannot express the op."""
    steps, ending = _steps(user, state.ending.value), state.ending
    for step in steps or ():
        taken = _with_step(state, ending, user, step)
        if taken is None:
            return None
        ending = taken
    return None if steps is None else replace(ending, value=user.results[0])


def _after_several(state: EndingState) -> EndingState | None:
    """Return the state after several ops that apply an epilogue, and read nothing else."""
    known = {state.ending.value: (argument := Expr("arg"))}
    for _ in range(values.MOST_STEPS):
        uses = [(one, use.owner.operation) for one in known for use in one.uses]
        left = [(one, op) for one, op in uses if not known.keys() & set(op.results)]
        ends = {one for one, _ in left}
        name = function_of(known[last := ends.pop()], argument) if len(ends) == 1 else ""
        step = None if name in ("", "none") else ResultStep(name)
        if step and (ending := _with_step(state, state.ending, None, step)):
            return replace(state, ending=replace(ending, value=last))
        made = [(op, _composed(op, known)) for _, op in left]
        known |= {op.results[0]: expr for op, expr in made if expr is not None}
        if all(expr is None for _, expr in made):
            break
    return None


def _composed(op: Any, known: Mapping[Any, Expr]) -> Expr | None:
    """Return what an elementwise op computes of known values; None if it reads others."""
    body = _body(op, known)
    arguments = {i: known[one] for i, one in enumerate(op.operands) if one in known}
    return None if body is None else composed(body, arguments)


def _with_step(state: EndingState, ending: Ending, user: Any, step: ResultStep) -> Ending | None:
    """Return the ending with one step of an op; None if a problem cannot express that."""
    value, without, former = state.ending.value, state.without, ending.epilogue
    if step == ROUNDING:
        kind = values.element(user.results[0])
        is_known = kind in SIGNIFICAND_BITS and "rounding" not in without and ending.added is None
        return replace(ending, rounds_to=kind) if is_known and not ending.rounds_to else None
    if step.name in FUNCTIONS:
        name = "relu6" if (former, step.name) == ("relu", "ceiling") else step.name
        may_end = former == "none" or (former, name) == ("relu", "relu6")
        may_end &= name not in SMOOTH or (values.element(value), ending.rounds_to) == ("f32", "")
        may_end &= name != "ceiling" and "relu" not in without
        return replace(ending, epilogue=name) if may_end else None
    if former != "none" or ending.rounds_to:
        return None
    if step.argument is not None and list(user.operands).index(value) < step.argument:
        other = user.operands[step.argument]
        if other.type == value.type and _is_summed(other):  # also of a single row
            return None
    if "bias" not in without and not ending.has_bias:
        if step.argument is None:
            return replace(ending, has_bias=True, number=step.number)
        if (found := _bias(user, step, state)) is not None:
            return replace(ending, has_bias=True, bias=found[0], repeated=found[1])
    is_kept = state.transposes or state.is_reshaped or "addition" in without
    added = None if is_kept else _whole(user, step, value)
    if added is None or ending.added is not None or not _may_add(state.summed, added):
        return None
    return replace(ending, added=added)


def _may_add(op: values.Structured | None, value: Any) -> bool:
    """Return whether a value may be added: sums start only from one that `op` does not read.

    Arguments belong to the caller and are not overwritten.
    """
    return op is None or (value not in op.inputs and not values.is_argument(value))


def _whole(op: Any, step: ResultStep, value: Any) -> Any | None:
    """Return a tensor like `value` that an op adds elementwise, else None; no repeated one."""
    if step.argument is None:
        return None
    seen = values.structured(op)
    if seen is not None and not seen.is_identity(step.argument):
        return None
    added = op.operands[step.argument]
    is_repeated = (maker := values.owner(added)) is not None and _repeated_axes(maker) is not None
    return added if added.type == value.type and not is_repeated else None


def _is_summed(value: Any, steps: int = values.MOST_STEPS) -> bool:
    """Return whether a value comes from sums that may include the addition as their ending.

    Of two such results the right one includes the other: the order of ops in a module is not always
    that of its author.
    """
    maker = values.owner(value)
    if maker is None or values.only_user(value) is None or not steps:
        return False
    if maker.name in values.RESHAPES:
        return _is_summed(maker.operands[0], steps - 1)
    seen = values.structured(maker)
    if seen is not None and not seen.is_parallel:
        return True
    inputs = maker.operands if seen is None else seen.inputs
    return any(_is_summed(one, steps - 1) for one in inputs if one.type == value.type)


def _transposition(op: Any) -> tuple[int, ...] | None:
    """Return the axis order of a transposition; None for another op."""
    seen = values.copy_of(op)
    order = None if seen is None else values.permutation(seen)
    return None if order is None or list(order) == sorted(order) else order


def _steps(op: Any, value: Any) -> tuple[ResultStep, ...] | None:
    """Return what an op does to each element of a value; None if it does more."""
    body, this = _body(op, (value,)), [i for i, one in enumerate(op.operands) if one == value]
    return None if body is None or len(this) != 1 else steps_on(body, this[0])


def _body(op: Any, read: Container[Any]) -> Expr | None:
    """Return what an op does to each element of values; None if they are read in other places."""
    if op.name.startswith(("arith.", "math.")):
        is_of_tensors = len(op.results) == 1 and values.rank(op.results[0])
        return body_of_tensors(op) if is_of_tensors else None
    seen = values.structured(op)
    if seen is None or not seen.is_parallel:
        return None
    is_like = all(
        seen.is_identity(i) and one.type.shape == seen.result.type.shape
        for i, one in enumerate(op.operands) if one in read
    )  # fmt: skip
    return body_of(seen) if is_like else None


def _bias(op: Any, step: ResultStep, state: EndingState) -> tuple[Any, tuple[Any, ...]] | None:
    """Return what an op adds as a bias, and the values that broadcast it; None if not a bias."""
    assert step.argument is not None
    seen = values.structured(op)
    added = op.operands[step.argument]
    at = values.long_axes(added) if seen is None else _places(seen, step.argument)
    return None if at is None else repeated_bias(added, at, state.columns)


def repeated_bias(
    value: Any, at: list[values.Axes], columns: values.Axes
) -> tuple[Any, tuple[Any, ...]] | None:
    """Return the source of a broadcast with an element per column, and the values in between.

    `at` are the axes of the sums for each axis of `value`, `columns` those of a bias.
    """
    passed: list[Any] = []
    is_alone = True
    for source, axes in values.origins(value, at):
        if axes == columns:
            return source, tuple(passed)
        is_alone = is_alone and values.only_user(source) is not None
        passed += [source] if is_alone else []
    return None


def _places(op: values.Structured, number: int) -> list[values.Axes] | None:
    """Return the result's axis for each axis of an operand; None if it is read otherwise."""
    axes, written = op.maps[number], op.maps[-1]
    operand = op.op.operands[number]
    if axes is None or written is None or not values.rank(operand):
        return None
    sizes = tuple(operand.type.shape)
    if any(size != 1 and (len(axis) != 1 or axis not in written)
           for axis, size in zip(axes, sizes, strict=True)):  # fmt: skip
        return None
    return [() if size == 1 else (written.index(axis),)
            for axis, size in zip(axes, sizes, strict=True)]  # fmt: skip


def _reshaped(op: Any, columns: values.Axes) -> values.Axes | None:
    """Return the columns' axes in another shape; None if one is merged with other axes."""
    try:
        before, after = values.static_shape(op.operands[0]), values.static_shape(op.results[0])
    except NestRefusedError:
        return None
    groups = values.reassociation(op)
    if op.name == "tensor.expand_shape":
        return tuple(i for column in columns for i in groups[column] if after[i] > 1)
    found: dict[int, int] = {}
    for i, group in enumerate(groups):
        long = tuple(axis for axis in group if before[axis] > 1)
        if not set(long) & set(columns):
            continue
        first = columns.index(long[0]) if long[0] in columns else 0
        if columns[first : first + len(long)] != long:
            return None
        found[first] = i
    return tuple(found[first] for first in sorted(found))
