"""How much of a layer's result a tile holds: what registers sum up at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, prod

from tilewise.kernels.mlir.cpu.loops import largest_divisor
from tilewise.kernels.mlir.network.layer import LayerShape
from tilewise.kernels.mlir.network.windows import MOST_PRODUCTS
from tilewise.kernels.target import Target

SPARE_REGISTERS = 4
SETS_BYTES = 4096
"""Of one way of a first cache: lines so far apart are of one set."""
IN_FLIGHT = 8
"""Sums that multiply-adds have to have under way: of two a cycle each takes four cycles."""


@dataclass(frozen=True)
class Tile:
    """What is summed up at once.

    Attributes:
        rows: neighbours along the layer's row.
        lines: of such rows, one below the other.
        blocks: of columns.
    """

    rows: int = 1
    lines: int = 1
    blocks: int = 1

    @property
    def size(self) -> int:
        """Rows times columns, in blocks."""
        return self.rows * self.lines * self.blocks


def tile_of(shape: LayerShape, target: Target) -> Tile:
    """The tile that multiplies most for what it loads, among those that registers hold.

    Each step loads a number of every row and a vector of every block, two in the time of two
    multiply-adds. The first cache holds a line of each row at once, which are as many of one set
    as it has ways.

    Args:
        shape: of the layer.
        target: whose registers and first cache they are.
    """
    if shape.is_by_channel:
        return _of_windows(shape)
    return min(_held(shape, target), key=_cost)


def _of_windows(shape: LayerShape) -> Tile:
    taps = prod(shape.extents[dim] for dim in shape.reductions)
    return Tile(largest_divisor((shape.length("row"),), max(MOST_PRODUCTS // taps, 1)))


def _held(shape: LayerShape, target: Target) -> Iterator[Tile]:
    """The tiles of which registers hold the sums."""
    vectors = -(-shape.columns // target.lanes("f32"))
    sums = max((target.vector_registers - SPARE_REGISTERS) // vectors, 1)
    sets = SETS_BYTES // gcd(SETS_BYTES, shape.distance)
    most = max(sets * (target.l1_bytes // SETS_BYTES), 1)
    for rows in _divisors(shape.length("row"), min(sums, most)):
        for lines in _divisors(shape.length("line"), sums // rows):
            for blocks in _divisors(shape.length("block"), sums // rows // lines):
                yield Tile(rows, lines, blocks)


def _cost(tile: Tile) -> tuple[float, float, int]:
    """What a product takes, in halves of a cycle; then what it loads; then fewer lines."""
    loads = tile.rows * tile.lines + tile.blocks
    return max(tile.size, loads, IN_FLIGHT) / tile.size, loads / tile.size, tile.lines


def _divisors(extent: int, most: int) -> Iterator[int]:
    return (size for size in range(1, min(extent, most) + 1) if extent % size == 0)
