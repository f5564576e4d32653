"""The ops around a contraction that may be included in its problem.

Before: transposes, broadcasts, zeros around an image. After: transpose, bias, addition, relu, and a
rounding of the sums to the type of the factors or a like one. Only
values with no other use are included, and copies of constants. Views are followed together with the
axes along which a bias may vary.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewise.kernels.mlir.dialects import children
from tilewise.kernels.mlir.frontend.child import values
from tilewise.kernels.mlir.frontend.child.bodies import (
    ROUNDING,
    SMOOTH,
    ResultStep,
    body_of,
    body_of_tensors,
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
            pads = pads_zeros(op, zero) if op.name == "tensor.pad" else _inserted(op, zero)
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
    first = next(children(op))
    is_of_zeros = first.name == "tensor.yield" and values.splat(first.operands[0]) == zero
    return (low, high) if is_of_zeros else None


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
        has_bias, has_relu, has_ceiling: applied in this order; the last is relu6's.
        smooth: the smooth epilogue, in place of relu; empty for none.
        rounds_to: the type that results are rounded to in the end; empty for that of the sums.
        axes: the final order of the result's axes; None if unchanged.
        value: the final result.
        added: a tensor of the result's shape that is added before relu, such as a residual.
        bias: a tensor with an element per column; None if the bias is `number`.
        repeated: values that only broadcast the bias.
    """

    value: Any
    has_bias: bool = False
    has_relu: bool = False
    has_ceiling: bool = False
    smooth: str = ""
    rounds_to: str = ""
    axes: tuple[int, ...] | None = None
    added: Any = None
    bias: Any = None
    number: values.Number = 0
    repeated: tuple[Any, ...] = ()

    @property
    def epilogue(self) -> str:
        """The function that is applied in the end, as problems name it."""
        if self.has_relu:
            return "relu6" if self.has_ceiling else "relu"
        return self.smooth or "none"


@dataclass(frozen=True)
class _State:
    """What is included so far, and `columns`, axes of its value; the rest as in `ending_of`."""

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


def ending_of(
    begun: Ending,
    columns: values.Axes,
    *,
    summed: values.Structured | None,
    transposes: bool = False,
    without: Collection[str] = (),
) -> Ending:
    """Return what may be included after a result.

    Args:
        begun: the result, with a bias if its sums start from one.
        columns: axes longer than one along which a bias may vary, in the problem's order.
        summed: the op if its sums may start from a tensor, which no transposition moves.
        transposes: whether a transposition is included.
        without: steps to leave out, of `relu`, `addition`, `bias` and `rounding`.
    """
    state = _State(begun, columns, summed, transposes, without)
    for _ in range(values.MOST_STEPS):
        user = values.only_user(state.ending.value)
        following = None if user is None else _after(state, user)
        if following is None:
            return state.ending
        state = following
    return state.ending


def _after(state: _State, user: Any) -> _State | None:
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


def _taken_in(state: _State, user: Any) -> Ending | None:
    """Return the ending with an elementwise op; None if a problem cannot express the op."""
    steps = _steps(user, state.ending.value)
    has_rounded = state.ending.rounds_to
    if steps is None or (has_rounded and {one.name for one in steps} - {"relu", "ceiling"}):
        return None
    rounded, smooth = has_rounded, ""
    if steps[-1:] == (ROUNDING,):
        steps, rounded = steps[:-1], values.element(user.results[0])
    if steps and steps[-1].name in SMOOTH:
        steps, smooth = steps[:-1], steps[-1].name
    if (steps or smooth) and state.ending.smooth:
        return None
    if smooth and ("relu" in state.without or values.element(state.ending.value) != "f32"):
        return None
    ending = _with_steps(state, user, steps)
    if ending is None or (smooth and ending.has_relu):
        return None
    is_known = rounded in SIGNIFICAND_BITS and "rounding" not in state.without
    if rounded and (not is_known or ending.added is not None):
        return None
    return replace(ending, smooth=smooth or ending.smooth, rounds_to=rounded)


def _with_steps(state: _State, user: Any, steps: tuple[ResultStep, ...]) -> Ending | None:
    value, ending = state.ending.value, state.ending
    for step in steps:
        may_have_bias = "bias" not in state.without and not ending.has_bias
        if step.name in ("relu", "ceiling") and "relu" in state.without:
            return None
        if step.name == "relu" and not ending.has_relu:
            ending = replace(ending, has_relu=True)
        elif step.name == "ceiling" and ending.has_relu and not ending.has_ceiling:
            ending = replace(ending, has_ceiling=True)
        elif step.name != "add" or ending.has_relu:
            return None
        elif may_have_bias and step.argument is None:
            ending = replace(ending, has_bias=True, number=step.number)
        elif may_have_bias and (found := _bias(user, step, state)) is not None:
            ending = replace(ending, has_bias=True, bias=found[0], repeated=found[1])
        else:
            is_kept = state.transposes or state.is_reshaped or "addition" in state.without
            added = None if is_kept else _whole(user, step, value)
            if added is None or ending.added is not None or not _may_add(state.summed, added):
                return None
            is_left = list(user.operands).index(value) < (step.argument or 0)
            if is_left and _is_summed(added):
                return None
            ending = replace(ending, added=added)
    return replace(ending, value=user.results[0])


def _may_add(op: values.Structured | None, value: Any) -> bool:
    """Return whether an op's sums may start from a value that it reads for nothing else.

    Arguments belong to the caller and are not overwritten.
    """
    return op is not None and value not in op.inputs and not values.is_argument(value)


def _whole(op: Any, step: ResultStep, value: Any) -> Any | None:
    """Return a tensor like `value` that an op adds elementwise, else None."""
    if step.argument is None:
        return None
    seen = values.structured(op)
    if seen is not None and not seen.is_identity(step.argument):
        return None
    added = op.operands[step.argument]
    return added if added.type == value.type else None


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
    if op.name.startswith("arith.") and len(op.results) == 1 and values.rank(op.results[0]):
        return steps_on(body_of_tensors(op), list(op.operands).index(value))
    seen = values.structured(op)
    if seen is None:
        return None
    this = [i for i, one in enumerate(op.operands) if one == value]
    if len(this) != 1 or not seen.is_identity(this[0]):
        return None
    if values.static_shape(op.results[0]) != values.static_shape(value) or not seen.is_parallel:
        return None
    return steps_on(body_of(seen), this[0])


def _bias(op: Any, step: ResultStep, state: _State) -> tuple[Any, tuple[Any, ...]] | None:
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
