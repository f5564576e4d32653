"""In what pieces one thread computes its part: blocks, register tiles, chunks of the reduction."""

from functools import lru_cache
from math import ceil
from typing import NamedTuple

from tilewise.search.space.division import balanced_chunk, equal_block
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space


class Sizes(NamedTuple):
    """What one thread computes, and in what pieces, in elements and counts.

    Attributes:
        row: extent of the dim that register tiles cut.
        rows: of the result, images and image rows included.
        row_tiles: register tiles that cover the rows.
        block_rows: rows of a block, as the steps leave it.
        row_blocks: blocks that cover the rows.
        cols: of the result.
        col_tiles: register tiles that cover the columns.
        block_cols: columns of a block.
        col_blocks: blocks that cover the columns.
        depth: of a chunk of the reduction.
        chunks: of the reduction.
    """

    row: int
    rows: int
    row_tiles: int
    block_rows: int
    row_blocks: int
    cols: int
    col_tiles: int
    block_cols: int
    col_blocks: int
    depth: int
    chunks: int

    @property
    def calls(self) -> int:
        """Calls of the micro-kernel."""
        return self.row_tiles * self.col_tiles * self.chunks

    @property
    def visits(self) -> int:
        """Pairs of a block of A and a block of B that are multiplied."""
        return self.col_blocks * self.row_blocks * self.chunks

    def computed_share(self, tile_cols: int, lanes: int) -> float:
        """Of all columns of the tiles, those that are computed: a rest within one vector is cut."""
        whole, rest = divmod(self.cols, tile_cols)
        last = 0 if not rest else lanes if rest <= lanes else tile_cols
        return (whole * tile_cols + last) / (self.col_tiles * tile_cols)

    def edge_share(self, tile_rows: int, tile_cols: int) -> float:
        """Of all tiles, those that the result cuts off."""
        rows, cols = self.row % tile_rows > 0, self.cols % tile_cols > 0
        per_row = -(-self.row // tile_rows)
        return 1 - (1 - rows / per_row) * (1 - cols / self.col_tiles)


def sizes_of(space: Space, point: Point, tile_rows: int, tile_cols: int) -> Sizes:
    """The pieces of a point's schedule, with register tiles of `tile_rows` by `tile_cols`."""
    extents, nest = space.part_of(point, tile_rows, tile_cols), space.workload.nest
    row = extents[nest.row]
    if nest.image == "A":
        lines = int(point["image_rows"])
        down = _down_images(row, extents["oh"], extents["n"], lines, tile_rows)
    else:
        down = _down(row, int(point["rows"]), tile_rows)
    across = _across(extents[nest.col], int(point["cols"]), tile_cols)
    unit = space.workload.arithmetic.depth
    return Sizes(*down, *across, *_deep(extents[nest.k], int(point["depth"]), unit))


@lru_cache(maxsize=4096)
def _down(row: int, wanted: int, unit: int) -> tuple[int, int, int, int, int]:
    """The first five of `Sizes`: tiles of `unit` rows, blocks of about `wanted`."""
    tiles = ceil(row / unit)
    block = min(equal_block(row, wanted, unit), tiles * unit)
    return row, row, tiles, block, ceil(row / block)


@lru_cache(maxsize=4096)
def _down_images(
    row: int, lines: int, images: int, wanted: int, unit: int
) -> tuple[int, int, int, int, int]:
    """The same of images: tiles lie within a line, blocks are about `wanted` lines."""
    tiles, block = ceil(row / unit), equal_block(lines, wanted, 1)
    all_lines = lines * images
    return row, row * all_lines, tiles * all_lines, block * row, ceil(lines / block) * images


@lru_cache(maxsize=4096)
def _across(width: int, wanted: int, unit: int) -> tuple[int, int, int, int]:
    """Those of `Sizes` for columns: tiles of `unit` columns, blocks of about `wanted`."""
    tiles = ceil(width / unit)
    block = min(equal_block(width, wanted, unit), tiles * unit)
    return width, tiles, block, ceil(width / block)


@lru_cache(maxsize=4096)
def _deep(reduction: int, wanted: int, unit: int) -> tuple[int, int]:
    """Depth and number of chunks of about `wanted` elements, whole `unit`s each."""
    depth = balanced_chunk(reduction, wanted, unit)
    return depth, ceil(reduction / depth)
