"""A layer of a packed network by itself: its loops by what they do, and its function."""

from dataclasses import dataclass
from math import prod

from kernels.mlir.frontend.nest import Axis, Dims

Axes = tuple[Axis, ...]


@dataclass(frozen=True)
class LayerShape:
    """The loops of a contraction over blocks.

    Attributes:
        extents: of the loops.
        result: the loops of the result's axes, in order; the last is the columns of a block.
        row: the loop of which neighbours share a block of weights; None where there is none.
        is_apart: whether neighbours along it have others between them, in memory.
        reductions: the loops that are summed over, in order; the last is the depth of a block.
        widens: whether what is multiplied is narrower than the sums.
    """

    extents: Dims
    result: Dims
    row: int | None
    is_apart: bool
    reductions: Dims
    widens: bool

    @classmethod
    def of(cls, extents: Dims, a: Axes, b: Axes, c: Axes, *, widens: bool) -> "LayerShape | None":
        """The shape of a contraction, by the axes of its operands; None if it has no columns."""
        result = tuple(axis[0][0] for axis in c if len(axis) == 1)
        in_a, in_b = ({dim for axis in axes for dim, _ in axis} for axes in (a, b))
        if len(result) != len(c) or not result or b[-1:] != c[-1:] or result[-1] in in_a:
            return None
        reductions = tuple(sorted(in_a & in_b - set(result)))
        if not reductions or len(in_a | in_b | set(result)) != len(extents):
            return None
        rows = [dim for dim in result[:-1] if dim in in_a and dim not in in_b and extents[dim] > 1]
        row = rows[-1] if rows else None
        is_apart = row is not None and _is_apart(row, a, c)
        return cls(extents, result, row, is_apart, reductions, widens)

    @property
    def products(self) -> int:
        """Multiplications of the layer."""
        return prod(self.extents)

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.extents[self.result[-1]]


def _is_apart(row: int, *operands: Axes) -> bool:
    """Whether a loop is none over neighbouring vectors, in one of some operands."""
    return any((row, 1) not in axes[-2] for axes in operands)


@dataclass(frozen=True)
class Layer:
    """A layer that occurs in a packed network.

    Attributes:
        payload: its function.
        shape: of its contraction.
        has_start: whether it makes itself what its sums start from.
        ends: ops on the contraction's result that it takes in.
        where: its places in the module.
    """

    payload: str
    shape: LayerShape
    has_start: bool
    ends: int
    where: tuple[str, ...]
