"""Loop nests that multiply and add, as accesses of three operands; no MLIR in here.

`C[..] += A[..] * B[..]`: an operand's axis is read at a sum of loop dims times constants.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

Term = tuple[int, int]
"""A loop dim and its coefficient."""
Axis = tuple[Term, ...]
Dims = tuple[int, ...]


class RefusedError(Exception):
    """The nest is none of our problems; the message is for the author of the op."""


@dataclass(frozen=True)
class Operand:
    """How a nest reads or writes a tensor.

    Attributes:
        axes: for each axis where it is read; no term where that is 0.
        shape: of the tensor.
    """

    axes: tuple[Axis, ...]
    shape: tuple[int, ...]

    @property
    def dims(self) -> frozenset[int]:
        """The dims that move it."""
        return frozenset(dim for axis in self.axes for dim, _ in axis)

    def transposed(self, axes: Sequence[int]) -> "Operand":
        """The same with the axes in another order."""
        return Operand(tuple(self.axes[i] for i in axes), tuple(self.shape[i] for i in axes))


@dataclass(frozen=True)
class Nest:
    """A nest of loops around one multiplication and one addition.

    Attributes:
        extents: of the loops.
        a, b: what is multiplied.
        c: what is added to.
    """

    extents: tuple[int, ...]
    a: Operand
    b: Operand
    c: Operand

    @property
    def has_windows(self) -> bool:
        """Whether an input is read at sums or multiples of dims, as by a convolution."""
        axes = (*self.a.axes, *self.b.axes)
        return any(len(axis) > 1 or (axis and axis[0][1] != 1) for axis in axes)

    def extent(self, dims: Iterable[int]) -> int:
        """Product of extents."""
        return prod(self.extents[dim] for dim in dims)

    def has_length(self, dim: int) -> bool:
        """Whether the dim is a loop at all, and not one step."""
        return self.extents[dim] > 1


@dataclass(frozen=True)
class Layout:
    """A problem that a nest is, and how the operands become those of the problem.

    Attributes:
        sizes: the problem's keys that the nest tells.
        axes: of the problem's A, B and C, in the order that the problem has.
        is_swapped: whether the nest's B is the problem's A.
        moved: what transpositions cost, in elements.
        columns: axes of C along which a bias varies.
        spatial: axes of the image along h and w; empty for a matmul.
    """

    sizes: dict[str, int | str | bool]
    axes: tuple[Dims, Dims, Dims]
    is_swapped: bool
    moved: int
    columns: frozenset[int]
    spatial: tuple[int | None, ...] = ()

    @property
    def is_convolution(self) -> bool:
        """Whether it is a conv2d."""
        return bool(self.spatial)


def moves(axes: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a transposition changes the place of an element in memory."""
    long = [axis for axis in axes if shape[axis] > 1]
    return long != sorted(long)


def effort(axes: Sequence[int], shape: Sequence[int], cost: int) -> int:
    """What a transposition costs: elements that are copied, and 1 for being there at all.

    Args:
        axes: the order.
        shape: of what is transposed.
        cost: of an element; 0 for a constant, which is transposed ahead.
    """
    return cost * prod(shape) + 1 if moves(axes, shape) else 0


def orders(*seen: Dims) -> tuple[Dims, ...]:
    """The different ones of some orders of the same dims."""
    return tuple(dict.fromkeys(seen))


def check_whole(nest: Nest, operand: Operand, name: str) -> None:
    """Refuse diagonals, and operands of which a part alone is read."""
    seen = [dim for axis in operand.axes for dim, _ in axis]
    if len(seen) != len(set(seen)):
        raise RefusedError(f"reads {name} along a diagonal: one index runs over two axes")
    for axis, size in zip(operand.axes, operand.shape, strict=True):
        is_plain = not axis or (len(axis) == 1 and axis[0][1] == 1)
        if is_plain and size != nest.extent(dim for dim, _ in axis):
            raise RefusedError(f"reads a part of {name} alone")
