"""An analytical model of a schedule's time, in cycles of the multiply-add units.

After Low, Igual, Smith and Quintana-Orti, Analytical Modeling Is Enough for High-Performance
BLIS (ACM TOMS 43(2), 2016), whose rules choose a register tile by latency times throughput
of the multiply-add units and blocks by what stays in which cache. Here the same
considerations are costs that add up, so that any two schedules can be compared: where the
rules say that a block fits, the cost of reading it falls to that of the nearer cache.

The weights of the costs were fitted, none below zero, to recorded spaces of problems
of different kinds (`benchmarks/replay/fit.py`); no term knows any problem.
"""

from functools import lru_cache
from math import ceil, gcd, log, log2, prod
from operator import itemgetter, mul
from typing import NamedTuple

from kernels.problem import Conv2d, Problem
from kernels.problem.iteration import is_packed_ahead, iteration_space
from kernels.target.model import Target
from search.blocks import balanced_chunk, equal_block
from search.parameters import Point, tile_shape
from search.space import Space

UNITS, LATENCY = 2, 4  # multiply-adds begun in a cycle, and cycles until one ends
LOADS = 2  # vectors loaded in a cycle
SHARE = 0.75  # of a cache that counts as ours; the rest is for what streams by
LINE, PAGE = 64, 4096  # a page is also a way of most first caches
L2_WAYS = 16
HALF = 0.5  # of the registers, from where unrolled loads crowd the accumulators
ENOUGH = 20  # accumulators, from where no latency shows

COSTS = {
    "multiply_adds": 1.0,
    "loads": 0.0882,
    "few_chains": 0.0361,
    "steps": 0.284,
    "unrolled": 0.0133,
    "crowded": 0.026,
    "calls": 37.3,
    "edges": 0.118,
    "c_lines": 0.276,
    "a_from_l2": 8.25,
    "a_from_l3": 9.6,
    "a_rows_from_l2": 7.52,
    "a_rows_from_l3": 9.65,
    "b_from_l2": 1.19,
    "b_from_l3": 1.96,
    "b_rows_from_l2": 1.85,
    "b_rows_from_l3": 2.57,
    "packed_a": 3.95,
    "packed_b": 2.03,
    "packed_b_far": 5.2,
    "fetched_b": 5.06,
}
"""Cycles for each; see `amounts`."""


TRAFFIC = tuple(name for name in COSTS if "_from_" in name)
EXTRA = ("calls", "c_lines", "packed_a", "packed_b", "packed_b_far", "fetched_b")
OVERLAP = 8.0
"""How well reading hides behind computing: 1 is not at all (their cycles add up), infinity is
wholly (the longer one counts)."""

# The same by their places, for what is asked of thousands of points.
_COSTS, _names = tuple(COSTS.values()), tuple(COSTS)
_extra = itemgetter(*map(_names.index, EXTRA))
_traffic = itemgetter(*map(_names.index, TRAFFIC))


def log_time(space: Space, point: Point) -> float:
    """Logarithm of the model's cycles for a point."""
    cycles = list(map(mul, _COSTS, amounts(space, point).values()))
    extra, traffic = sum(_extra(cycles)), sum(_traffic(cycles))
    computing = sum(cycles) - traffic - extra
    return log(extra + (computing**OVERLAP + traffic**OVERLAP) ** (1 / OVERLAP))


class _Sizes(NamedTuple):
    """What one thread computes, and in what pieces.

    Attributes:
        row: of the dim that register tiles cut.
        rows, cols: of the result; images and image rows are counted in `rows`.
        row_tiles, col_tiles: micro-tiles that cover them.
        depth, chunks: of the reduction, and how many such there are.
        block_rows, block_cols: of a block, as the steps leave it.
        col_blocks, row_blocks: how many blocks of columns and of rows there are.
    """

    row: int
    rows: int
    cols: int
    row_tiles: int
    col_tiles: int
    depth: int
    chunks: int
    block_rows: int
    block_cols: int
    col_blocks: int
    row_blocks: int


def amounts(space: Space, point: Point) -> dict[str, float]:
    """How much there is of each of `COSTS` in one run of one thread.

    Slots of vector multiply-adds (or what else holds up a step) and of loads; accumulators
    that lack; steps of the reduction's loop; calls of micro-kernels; slots in tiles that are
    cut off; cache lines of C, and of A and B by the cache they come from, packed or as rows
    of the operand; lines that packs copy.
    """
    tile_rows, vectors, split = tile_shape(point["tile"])
    if split:
        return _split_amounts(space, tile_rows, vectors, split, int(point["unroll"]))
    lanes, unroll, unit = space.lanes, int(point["unroll"]), space.how.depth
    tile_cols = vectors * lanes
    sizes = _sizes(space, point, tile_rows, tile_cols, unit)
    calls = sizes.row_tiles * sizes.col_tiles * sizes.chunks
    words = sizes.depth * space.dims.taps / unit
    busy = max(
        tile_rows * vectors * (2 if space.adds_apart else 1) / UNITS,
        LATENCY,
        (tile_rows + vectors) / LOADS,
    )
    out = dict.fromkeys(COSTS, 0.0)
    out["multiply_adds"] = calls * words * busy * _computed_share(sizes, tile_cols, lanes)
    out["loads"] = calls * words * (tile_rows + vectors) / LOADS
    out["few_chains"] = calls * words * max(0, ENOUGH - tile_rows * vectors) / UNITS
    out["steps"] = calls * words / unroll
    out["unrolled"] = out["multiply_adds"] * log2(unroll)
    used = tile_rows * vectors + vectors
    out["crowded"] = out["unrolled"] * max(0, used / space.target.vector_registers - HALF)
    out["calls"] = calls
    out["edges"] = out["multiply_adds"] * _edge_share(sizes, tile_rows, tile_cols)
    accumulator = space.problem.element.accumulator_bytes
    out["c_lines"] = (2 * sizes.chunks - 1) * sizes.rows * sizes.cols * accumulator / LINE
    _reads(out, space, point, sizes, (tile_rows, tile_cols))
    _packs(out, space, point, sizes, tile_cols)
    lead = prod(space.extents[dim] for dim in space.dims.lead)
    return out if lead == 1 else {name: amount * lead for name, amount in out.items()}


def _sizes(space: Space, point: Point, rows: int, cols: int, unit: int) -> _Sizes:
    extents = space.part_of(point, rows, cols)
    width, reduction = extents[space.dims.col], extents[space.dims.stream]
    depth = balanced_chunk(reduction, int(point["depth"]), unit)
    block_cols = min(equal_block(width, int(point["cols"]), cols), ceil(width / cols) * cols)
    row = extents[space.dims.row]
    tiles = ceil(row / rows)
    if space.dims.image == "A":
        lines = extents["oh"]
        block = equal_block(lines, int(point["image_rows"]), 1)
        images = extents["n"]
        total, all_tiles = row * lines * images, tiles * lines * images
        block_rows, row_blocks = block * row, ceil(lines / block) * images
    else:
        block_rows = min(equal_block(row, int(point["rows"]), rows), tiles * rows)
        total, all_tiles, row_blocks = row, tiles, ceil(row / block_rows)
    return _Sizes(
        row=row,
        rows=total,
        cols=width,
        row_tiles=all_tiles,
        col_tiles=ceil(width / cols),
        depth=depth,
        chunks=ceil(reduction / depth),
        block_rows=block_rows,
        block_cols=block_cols,
        col_blocks=ceil(width / block_cols),
        row_blocks=row_blocks,
    )


def _computed_share(sizes: _Sizes, tile_cols: int, lanes: int) -> float:
    """Of all columns of the tiles, those that are computed: a rest within one vector is cut."""
    whole, rest = divmod(sizes.cols, tile_cols)
    last = 0 if not rest else lanes if rest <= lanes else tile_cols
    return (whole * tile_cols + last) / (sizes.col_tiles * tile_cols)


def _edge_share(sizes: _Sizes, tile_rows: int, tile_cols: int) -> float:
    """Of all tiles, those that the result cuts off."""
    rows, cols = sizes.row % tile_rows > 0, sizes.cols % tile_cols > 0
    per_row = -(-sizes.row // tile_rows)
    return 1 - (1 - rows / per_row) * (1 - cols / sizes.col_tiles)


def _reads(
    out: dict[str, float], space: Space, point: Point, sizes: _Sizes, tile: tuple[int, int]
) -> None:
    """Lines of A and B that micro-kernels read from beyond the first cache.

    A call reads a strip of A and a panel of B. The first reading of a block finds it where
    its pack left it, or where the operand lies; a later one finds what was read in between
    before it, and still in the first cache if both fit.
    """
    rows, cols = tile
    size, taps = space.problem.element.bytes, space.dims.taps
    calls = sizes.row_tiles * sizes.col_tiles * sizes.chunks
    visits = sizes.col_blocks * sizes.row_blocks * sizes.chunks
    row = sizes.depth * size
    strip, panel = rows * row, cols * row * taps
    block_a, block_b = sizes.block_rows * row, sizes.block_cols * row * taps
    stored_a, stored_b = _stored(space.problem, "A"), _stored(space.problem, "B")
    a = _Held("a", space.target, stored_a, bool(point["pack_a"]), row)
    b = _Held("b", space.target, stored_b, bool(point["pack_b"]), cols * size)
    if point["outer"] == "cols":  # a panel of B stays while the block of A passes by
        again_a, again_b = float(block_a), panel + a.weigh(strip) / b.weigh(1)
    else:
        again_a, again_b = strip + b.weigh(panel) / a.weigh(1), float(block_b)
    for held, read, first, again, block in (
        (a, calls * strip, visits * block_a, again_a, block_a),
        (b, calls * panel, visits * block_b, again_b, block_b),
    ):
        held.add_lines(out, min(first, read), block if held.is_packed else held.stored.total)
        held.add_lines(out, max(0, read - first), again)


class _Stored(NamedTuple):
    """An operand as the problem stores it.

    Attributes:
        total: bytes of it.
        stride: bytes from one row to the next.
        is_packed_ahead: whether its pack is no part of a run.
    """

    total: int
    stride: int
    is_packed_ahead: bool


@lru_cache(maxsize=64)
def _stored(problem: Problem, role: str) -> _Stored:
    shape = problem.operand_shapes[iteration_space(problem).operand(role)]
    size = problem.element.bytes
    return _Stored(prod(shape) * size, shape[-1] * size, is_packed_ahead(problem, role))


class _Held(NamedTuple):
    """How an operand sits in the caches: packed without gaps, or as rows at a stride.

    Rows whose stride shares a large power of two with a cache's way fall on few of its
    sets, so that they fill it sooner.
    """

    name: str
    target: Target
    stored: _Stored
    is_packed: bool
    row_bytes: int

    def weigh(self, amount: float, way: int = PAGE) -> float:
        """Bytes that `amount` takes of a cache whose ways have `way` bytes."""
        if self.is_packed:
            return amount
        return amount * max(1.0, gcd(self.stored.stride, way) / self.row_bytes)

    def add_lines(self, out: dict[str, float], read: float, held: float) -> None:
        """Add the lines of `read` bytes, of which `held` have to stay to be found again."""
        target = self.target
        kind = self.name if self.is_packed else f"{self.name}_rows"
        if self.weigh(held, target.l2_bytes // L2_WAYS) > SHARE * target.l2_bytes:
            out[f"{kind}_from_l3"] += read / LINE
        elif self.weigh(held) > SHARE * target.l1_bytes:
            out[f"{kind}_from_l2"] += read / LINE


def _packs(out: dict[str, float], space: Space, point: Point, sizes: _Sizes, cols: int) -> None:
    """Lines that packs copy."""
    size = space.problem.element.bytes
    if point["pack_b"] and not _stored(space.problem, "B").is_packed_ahead:
        reduction = sizes.depth * sizes.chunks * space.dims.taps
        lines = reduction * sizes.col_tiles * cols * size / LINE
        whole = lines * LINE > SHARE * space.target.l2_bytes
        if point.get("prefetch"):
            out["fetched_b"] = lines
        else:
            out["packed_b_far" if whole else "packed_b"] = lines
    if point["pack_a"]:
        halo = 1.0
        if isinstance(space.problem, Conv2d) and space.dims.image == "A":
            halo = space.problem.stride**2
            if int(point["image_rows"]):
                halo *= 1 + (space.problem.kh - 1) / int(point["image_rows"])
        times = sizes.col_blocks
        lines = sizes.rows * halo * sizes.depth * sizes.chunks * size / LINE
        out["packed_a"] = lines * times


def _split_amounts(
    space: Space, rows: int, cols: int, vectors: int, unroll: int
) -> dict[str, float]:
    """A tile of single columns: both factors are read along the reduction."""
    dims = space.dims
    height, width = space.extents[dims.row], space.extents[dims.col]
    calls = ceil(height / rows) * ceil(width / cols)
    lanes = vectors * space.lanes
    words = ceil(space.extents[dims.stream] / lanes)
    chains = rows * cols * vectors
    out = dict.fromkeys(COSTS, 0.0)
    busy = max(chains / UNITS, LATENCY, vectors * (rows + cols) / LOADS)
    out["multiply_adds"] = calls * words * busy
    out["steps"] = calls * words / unroll
    out["calls"] = calls * (1 + rows * cols / 2)  # sums within vectors
    return out
