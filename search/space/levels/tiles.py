"""Tiles of vectors as a parameter: rows times columns of the result that registers hold."""

from dataclasses import dataclass
from math import ceil, log2

from tilewise.kernels.mlir.tuning_spec.form import Form
from tilewise.kernels.target.model import Target
from tilewise.search.space.parameters import ROWS_SPAN, WIDTH_SPAN, Parameter
from tilewise.search.space.points import TilePoint, Value

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
VECTORS = (1, 2, 3, 4, 6, 8)
SPARE_REGISTERS = 2  # for what is loaded of both factors
FULL = 0.4  # of the registers, from where a tile is worth a trial, unless the result has no more
MAX_STEP = 1.1  # doublings of rows or columns between neighbouring tiles


@dataclass(frozen=True)
class VectorTile(Parameter):
    """Tiles in elements; near each other are those of near sides."""

    values: tuple[TilePoint, ...]

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        """The tiles whose rows and columns are at most about twice or half as many."""
        rows, cols = sides(value)
        return tuple(
            other
            for other in self.values
            if other != value and _doublings(other, rows, cols) <= MAX_STEP
        )

    def encode(self, value: Value) -> tuple[float, ...]:
        """Logarithms of rows and of columns."""
        rows, cols = sides(value)
        return (log2(rows) / ROWS_SPAN, log2(cols) / WIDTH_SPAN)

    def nearest(self, rows: int, cols: int) -> Value:
        """The tile nearest to these sides."""
        return min(self.values, key=lambda tile: _doublings(tile, rows, cols))


def sides(tile: Value) -> tuple[int, int]:
    """Rows and columns of a tile."""
    assert isinstance(tile, TilePoint)
    return tile.rows, tile.vectors


def _doublings(tile: Value, rows: int, cols: int) -> float:
    """How far a tile is from some sides."""
    high, wide = sides(tile)
    return abs(log2(high / rows)) + abs(log2(wide / cols))


def vector_tiles(form: Form, target: Target, lanes: int) -> VectorTile:
    """The tiles that fit the registers and fill them, or hold the whole result's side."""
    rows, cols = form.extent(form.rows), form.extent(form.cols)
    free = target.vector_registers - SPARE_REGISTERS
    found: dict[TilePoint, None] = {}
    for high in (rows, *ROWS) if rows < ROWS[-1] else ROWS:
        for vectors in VECTORS:
            wide = min(vectors * lanes, cols)
            held = high * ceil(wide / lanes)
            is_whole = high == rows or wide == cols or vectors == VECTORS[-1]
            if high <= rows and held <= free and (held >= FULL * free or is_whole):
                found[TilePoint(high, wide, "iree")] = None
    return VectorTile("tile", tuple(sorted(found, key=sides)))
