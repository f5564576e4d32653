"""Views of a tensor through reshapes, transpositions, broadcasts and slices.

Each axis of a view is a list of digits of its index, outermost first: `(extent, step)`, where the
step is the distance of neighbours in the tensor, 0 for a broadcast. A reshape only moves digits
between axes, so that groups of a reduction keep their form whatever shape a module gives them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewise.kernels.mlir.frontend.nest import Axis

Digit = tuple[int, int]
Digits = tuple[Digit, ...]
_ONE: Digits = ((1, 0),)


class NotStridedError(Exception):
    """A view cannot be expressed by digits."""


@dataclass(frozen=True)
class StridedView:
    """The digits of each axis, and its length, which is less than their product after a slice."""

    axes: tuple[Digits, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, shape: Sequence[int]) -> "StridedView":
        """Return the view of a whole tensor in its own order."""
        steps = [prod(shape[i + 1 :]) for i in range(len(shape))]
        axes = tuple(((size, step),) for size, step in zip(shape, steps, strict=True))
        return cls(axes, tuple(shape))

    def collapsed(self, groups: Sequence[Sequence[int]]) -> "StridedView":
        """Join the axes of each group."""
        return StridedView(
            tuple(self.joined(group) for group in groups),
            tuple(prod(self.shape[axis] for axis in group) for group in groups),
        )

    def expanded(self, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> "StridedView":
        """Split each axis into a group of axes of `shape`."""
        found: list[Digits] = []
        for axis, group in enumerate(groups):
            sizes = [shape[i] for i in group]
            if self.shape[axis] in sizes:  # all others are one
                at = sizes.index(self.shape[axis])
                found += [self.axes[axis] if i == at else _ONE for i in range(len(group))]
            elif self._is_cut(axis):
                raise NotStridedError
            else:
                found += _split(self.axes[axis], sizes)
        return StridedView(tuple(found), tuple(shape))

    def remapped(self, read: Sequence[Axis], shape: Sequence[int]) -> "StridedView":
        """Return the view over loops of `shape`, which read axis `i` along the loop `read[i]`."""
        found: list[Digits] = [((size, 0),) for size in shape]
        for digits, size, axis in zip(self.axes, self.shape, read, strict=True):
            if not axis and size == 1:
                continue
            if len(axis) != 1 or axis[0][1] != 1 or size != shape[axis[0][0]]:
                raise NotStridedError
            found[axis[0][0]] = digits
        return StridedView(tuple(found), tuple(shape))

    def sliced(self, shape: Sequence[int]) -> "StridedView":
        """Return the first elements of each axis."""
        axes = (_ONE if size == 1 else axis for axis, size in zip(self.axes, shape, strict=True))
        return StridedView(tuple(axes), tuple(shape))

    def joined(self, axes: Sequence[int]) -> Digits:
        """Return the digits of some axes as those of one index; the first may be cut short."""
        are_long = [self.shape[axis] > 1 for axis in axes]
        if any(self._is_cut(axis) and any(are_long[:i]) for i, axis in enumerate(axes)):
            raise NotStridedError
        return tuple(one for axis in axes for one in self.axes[axis])

    def _is_cut(self, axis: int) -> bool:
        return prod(extent for extent, _ in self.axes[axis]) != self.shape[axis]


def _split(digits: Digits, sizes: Sequence[int]) -> list[Digits]:
    """Return the digits of the parts into which an index is split, the first part outermost."""
    rest, found = list(digits), list[Digits]()
    for size in reversed(sizes):
        part, left = list[Digit](), size
        while left > 1:
            extent, step = rest.pop()
            taken = min(extent, left)
            if extent % taken or left % taken:
                raise NotStridedError
            if extent > taken:
                rest.append((extent // taken, step * taken))
            part.insert(0, (taken, step))
            left //= taken
        found.insert(0, tuple(part) or _ONE)
    return found


def group_of(digits: Digits) -> int | None:
    """Return how many neighbours share an element; None if an element is shared otherwise."""
    group, outer = 1, list(digits)
    while outer and (outer[-1][1] == 0 or outer[-1][0] == 1):
        group *= outer.pop()[0]
    return None if any(step == 0 and extent > 1 for extent, step in outer) else group
