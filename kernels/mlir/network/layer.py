"""A layer of a packed network by itself: its loops by what they do, and its function."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from tilewise.kernels.mlir.frontend.nest import Dims, Operand


@dataclass(frozen=True)
class LayerShape:
    """The loops of a contraction over blocks, or of windows of single channels.

    Attributes:
        extents: of the loops.
        result: the loops of the result's axes, in order; the last is the columns of a block.
        row: the loop of which neighbours share a block of weights; None where there is none.
        line: another one, around it.
        block: the loop over the result's blocks of columns; None where there is one block.
        is_apart: whether neighbours along it have others between them, in memory.
        distance: bytes between neighbours along it, in the image.
        reductions: the loops that are summed over, in order; the last is the depth of a block.
        widens: whether what is multiplied is narrower than the sums.
        is_by_channel: whether each channel of the result is made of the same one of the image, as
            by a pool or a depthwise filter. Its neighbours in a block then make a vector.
        is_pool: whether nothing is multiplied.
    """

    extents: Dims
    result: Dims
    row: int | None
    line: int | None
    block: int | None
    is_apart: bool
    distance: int
    reductions: Dims
    widens: bool
    is_by_channel: bool = False
    is_pool: bool = False

    @classmethod
    def of(
        cls, extents: Dims, operands: tuple[Operand, Operand, Operand], *, widens: bool
    ) -> "LayerShape | None":
        """The shape of a contraction, by its image, weights and result; None without columns."""
        image, weights, made = operands
        result = tuple(axis[0][0] for axis in made.axes if len(axis) == 1)
        whole = len(result) == len(made.axes) and bool(result)
        if whole and result[-1] in image.dims:
            return cls._by_channel(extents, operands, result, widens=widens)
        if not whole or weights.axes[-1:] != made.axes[-1:]:
            return None
        reductions = tuple(sorted(image.dims & weights.dims - set(result)))
        if not reductions or len(image.dims | weights.dims) != len(extents):
            return None
        several = [dim for dim in result[:-1] if extents[dim] > 1]
        rows = [None, None, *(dim for dim in several if dim in image.dims - weights.dims)]
        blocks = [None, *(dim for dim in several if dim in weights.dims - image.dims)]
        line, row = rows[-2:]
        is_apart, distance = False, 0
        if row is not None:
            is_apart = any((row, 1) not in one.axes[-2] for one in (image, made))
            distance = _distance(image, row) * (2 if widens else 4)
        return cls(extents, result, row, line, blocks[-1], is_apart, distance, reductions, widens)

    @classmethod
    def _by_channel(
        cls,
        extents: Dims,
        operands: tuple[Operand, Operand, Operand],
        result: Dims,
        *,
        widens: bool,
    ) -> "LayerShape | None":
        """The shape of windows; None where neighbours in memory are no neighbouring channels."""
        image, weights, made = operands
        lanes = made.axes[-1]
        reductions = tuple(dim for dim in range(len(extents)) if dim not in result)
        if image.axes[-1] != lanes or not reductions:
            return None
        if result[-1] in weights.dims and weights.axes[-1] != lanes:
            return None
        rows = [dim for dim in result[:-1] if extents[dim] > 1]
        row = rows[-1] if rows else None
        distance = 0 if row is None else _distance(image, row) * (2 if widens else 4)
        is_pool = not weights.dims - set(reductions)
        return cls(
            extents, result, row, None, None, True, distance, reductions, widens, True, is_pool
        )

    @property
    def flops(self) -> int:
        """Floating-point operations of the layer: a product and a sum, or one of a pool."""
        return prod(self.extents) * (1 if self.is_pool else 2)

    def length(self, part: Literal["row", "line", "block"]) -> int:
        """Steps of one of the loops of which a tile has a part; 1 where there is none."""
        dim = {"row": self.row, "line": self.line, "block": self.block}[part]
        return 1 if dim is None else self.extents[dim]

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.extents[self.result[-1]]


def _distance(operand: Operand, dim: int) -> int:
    """Elements between neighbours along a loop."""
    steps = 0
    for i, axis in enumerate(operand.axes):
        steps += sum(step for one, step in axis if one == dim) * prod(operand.shape[i + 1 :])
    return steps


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
