"""What stands before an op and may be taken in: transposes, repetitions, zeros around an image.

Only what nobody else uses is taken in; of a constant a copy costs nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.structured import permutation, static_shape, structured
from tilewise.kernels.mlir.frontend.child.values import (
    MOST_STEPS,
    RESHAPES,
    integers,
    is_constant,
    is_copy,
    only_user,
    owner,
    reassociation,
    splat,
)
from tilewise.kernels.mlir.frontend.nest import RefusedError


@dataclass(frozen=True)
class Before:
    """What an input is made of, if the problem takes that in.

    Attributes:
        axes: of the input, as its source has them; None for the input itself.
        is_repeated: whether the source has fewer of them; else it is transposed.
    """

    axes: tuple[int, ...] | None = None
    is_repeated: bool = False

    @property
    def is_transposed(self) -> bool:
        """Whether a transposition is taken in."""
        return self.axes is not None and not self.is_repeated


def befores(value: Any, *, may_repeat: bool) -> list[Before]:
    """What may be taken in before an input, and nothing."""
    order, axes = transposed_source(value), repeated_source(value) if may_repeat else None
    return [
        Before(),
        *([] if order is None else [Before(order)]),
        *([] if axes is None else [Before(axes, is_repeated=True)]),
    ]


def transposed_source(value: Any) -> tuple[int, ...] | None:
    """For each axis of what is transposed into `value` (and perhaps padded) the value's axis."""
    op = owner(value)
    if op is not None and op.name == "tensor.pad" and _is_taken(value):
        return transposed_source(op.operands[0]) if _pads_zeros(op) else None
    if op is None or not is_copy(op) or not _is_taken(value):
        return None
    seen = structured(op)
    order = permutation(seen) if seen is not None else None
    if order is None or list(order) == sorted(order):
        return None
    return tuple(order.index(axis) for axis in range(len(order)))


def repeated_source(value: Any) -> tuple[int, ...] | None:
    """The axes of a value that what is repeated into it has, in order; None if nothing is."""
    op = owner(value)
    if op is None or not is_copy(op) or not _is_taken(value):
        return None
    seen = structured(op)
    assert seen is not None
    read, written = seen.maps
    if read is None or written is None or not 0 < len(read) < len(written):
        return None
    if any(len(axis) != 1 or axis[0][1] != 1 or axis not in written for axis in read):
        return None
    axes = tuple(written.index(axis) for axis in read)
    return axes if list(axes) == sorted(set(axes)) else None


def _is_taken(value: Any) -> bool:
    return only_user(value) is not None or is_constant(value)


@dataclass(frozen=True)
class _Trail:
    """A value before an op; `at` says for each window which axis of the value it runs along."""

    value: Any
    at: tuple[int | None, ...]


def zeros_around(
    image: Any, spatial: Sequence[int | None], *, transposes: bool, reshapes: bool
) -> int:
    """Zeros that an op before pads an image with, as many on each side of both windows; else 0.

    Args:
        image: what the convolution reads.
        spatial: the axes of its windows; None for a window of one.
        transposes: whether the problem takes in a transposition of the image.
        reshapes: whether the image may be reshaped after it is padded.
    """
    trail = _Trail(image, tuple(spatial))
    for _ in range(MOST_STEPS):
        op = owner(trail.value)
        if op is None or only_user(trail.value) is None:
            return 0
        if op.name == "tensor.pad":
            return _padding(_pads_zeros(op), trail.at)
        if op.name == "tensor.insert_slice":
            return _padding(_inserted(op), trail.at)
        if not (reshapes if op.name in RESHAPES else transposes):
            return 0
        before = _before(op, trail)
        if before is None:
            return 0
        trail, transposes = before, transposes and op.name in RESHAPES
    return 0


def _before(op: Any, trail: _Trail) -> _Trail | None:
    """One step further from the op, where the windows' axes stay axes."""
    if op.name in RESHAPES:
        return _before_reshape(op, trail)
    if not is_copy(op):
        return None
    seen = structured(op)
    order = permutation(seen) if seen is not None else None
    if order is None:
        return None
    at = tuple(None if axis is None else order[axis] for axis in trail.at)
    return replace(trail, value=op.operands[0], at=at)


def _before_reshape(op: Any, trail: _Trail) -> _Trail | None:
    source = op.operands[0]
    try:
        shapes = static_shape(source), static_shape(op.results[0])
    except RefusedError:
        return None
    groups, at = reassociation(op), list[int | None]()
    for axis in trail.at:
        if axis is None:
            at.append(None)
            continue
        if op.name == "tensor.expand_shape":
            found = [i for i, group in enumerate(groups) if axis in group]
        else:
            found = [i for i in groups[axis] if shapes[0][i] > 1] or groups[axis][:1]
        if len(found) != 1 or shapes[0][found[0]] != shapes[1][axis]:
            return None
        at.append(found[0])
    return _Trail(source, tuple(at))


def _pads_zeros(op: Any) -> tuple[list[int], list[int]] | None:
    """Elements of zero before and after each axis; None if they are not known, or not zero."""
    low, high = (integers(op.attributes[name]) for name in ("static_low", "static_high"))
    if any(one < 0 for one in (*low, *high)):  # dynamic ones, too
        return None
    block = op.regions[0].blocks[0]
    first = next(iter(block.operations)).operation
    if first.name != "tensor.yield" or splat(first.operands[0]) != 0:
        return None
    return low, high


def _inserted(op: Any) -> tuple[list[int], list[int]] | None:
    """The same of a tensor that is put into one of zeros."""
    source, target = op.operands[0], op.operands[1]
    offsets, steps = (
        integers(op.attributes[name]) for name in ("static_offsets", "static_strides")
    )
    inner, outer = source.type, target.type
    if not (isinstance(inner, ir.RankedTensorType) and inner.rank == outer.rank):
        return None
    if splat(target) != 0 or any(one != 1 for one in steps) or any(one < 0 for one in offsets):
        return None
    if not (inner.has_static_shape and outer.has_static_shape):
        return None
    after = [
        whole - part - before
        for whole, part, before in zip(outer.shape, inner.shape, offsets, strict=True)
    ]
    return offsets, after


def _padding(pads: tuple[list[int], list[int]] | None, at: Sequence[int | None]) -> int:
    """The padding that all windows have on both sides, if nothing else is padded."""
    if pads is None or None in at:
        return 0
    low, high = pads
    if any(low[i] or high[i] for i in range(len(low)) if i not in at):
        return 0
    told = {one for axis in at if axis is not None for one in (low[axis], high[axis])}
    return told.pop() if len(told) == 1 else 0
