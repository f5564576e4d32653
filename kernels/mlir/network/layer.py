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
        step: how far apart in the image neighbours along it are.
        reductions: the loops that are summed over, in order; the last is the depth of a block.
    """

    extents: Dims
    result: Dims
    row: int | None
    step: int
    reductions: Dims

    @classmethod
    def of(cls, extents: Dims, a: Axes, b: Axes, c: Axes) -> "LayerShape | None":
        """The shape of a contraction, by the axes of its operands; None if it has no columns."""
        result = tuple(axis[0][0] for axis in c if len(axis) == 1)
        in_a, in_b = ({dim for axis in axes for dim, _ in axis} for axes in (a, b))
        if len(result) != len(c) or not result or b[-1:] != c[-1:] or result[-1] in in_a:
            return None
        reductions = tuple(sorted(in_a & in_b - set(result)))
        if not reductions or len(in_a | in_b | set(result)) != len(extents):
            return None
        steps = {dim: step for axis in a for dim, step in axis}
        rows = [dim for dim in result[:-1] if dim in in_a and dim not in in_b and extents[dim] > 1]
        row = rows[-1] if rows else None
        return cls(extents, result, row, steps[row] if row is not None else 1, reductions)

    @property
    def products(self) -> int:
        """Multiplications of the layer."""
        return prod(self.extents)

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.extents[self.result[-1]]


@dataclass(frozen=True)
class Layer:
    """A layer that occurs in a packed network.

    Attributes:
        payload: its function.
        shape: of its contraction.
        ends: ops on the contraction's result that it takes in.
        where: its places in the packed module.
        depth: products that make an element of its result.
    """

    payload: str
    shape: LayerShape
    ends: int
    where: tuple[str, ...]
    depth: int
