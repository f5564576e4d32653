"""An analytical model of a schedule's time, in cycles of the multiply-add units.

After Low, Igual, Smith and Quintana-Orti, Analytical Modeling Is Enough for High-Performance
BLIS (ACM TOMS 43(2), 2016), whose rules choose a register tile by latency times throughput
of the multiply-add units and blocks by what stays in which cache. Here the same
considerations are costs that add up, so that any two schedules can be compared: where the
rules say that a block fits, the cost of reading it falls to that of the nearer cache.

What there is of each cost is counted here; what one of it costs, the weights say
(`search.model.weights`).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd, log, log2, prod
from operator import itemgetter, mul
from typing import NamedTuple

from kernels.problem import Conv2d
from search.model.weights import EXTRA, NAMES, TRAFFIC, Weights, shipped
from search.space.block_sizes import balanced_chunk, equal_block
from search.space.points import Point
from search.space.space import Space
from search.space.tiles import tile_shape

UNITS, LATENCY = 2, 4  # multiply-adds begun in a cycle, and cycles until one ends
ADD_LATENCY = 1  # where products are added apart, only the sums of integers wait for one another
LOADS = 2  # vectors loaded in a cycle
SHARE = 0.75  # of a cache that counts as ours; the rest is for what streams by
LINE, PAGE = 64, 4096  # a page is also a way of most first caches
L2_WAYS = 16
HALF = 0.5  # of the registers, from where unrolled loads crowd the accumulators
ENOUGH = 20  # accumulators, from where no latency shows

_extra = itemgetter(*map(NAMES.index, EXTRA))
_traffic = itemgetter(*map(NAMES.index, TRAFFIC))


@dataclass(frozen=True)
class Model:
    """How long the schedules of a space should take.

    Attributes:
        space: whose points the model judges.
        weights: what one of each amount costs.
    """

    space: Space
    weights: Weights

    @classmethod
    def shipped(cls, space: Space) -> "Model":
        """The model with the weights that Tilewise ships for the space's target."""
        return cls(space, shipped(space.target))

    def log_time(self, point: Point) -> float:
        """Logarithm of the modelled cycles of a point."""
        overlap = self.weights.overlap
        cycles = list(map(mul, self.weights.cycles, amounts(self.space, point).values()))
        extra, traffic = sum(_extra(cycles)), sum(_traffic(cycles))
        computing = sum(cycles) - traffic - extra
        return log(extra + (computing**overlap + traffic**overlap) ** (1 / overlap))


class _Sizes(NamedTuple):
    """What one thread computes, and in what pieces.

    Attributes:
        row: of the dim that register tiles cut.
        rows: of the result, images and image rows included.
        row_tiles: micro-tiles that cover them.
        block_rows: of a block, as the steps leave it.
        row_blocks: how many of those there are.
        cols, col_tiles, block_cols, col_blocks: the same of the columns.
        depth, chunks: of the reduction, and how many such there are.
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


def amounts(space: Space, point: Point) -> dict[str, float]:
    """How much there is of each of `costs.NAMES` in one run of one thread.

    Slots of vector multiply-adds (or what else holds up a step) and of loads; accumulators
    that lack; steps of the reduction's loop; calls of micro-kernels; slots in tiles that are
    cut off; cache lines of C, and of A and B by the cache they come from, packed or as rows
    of the operand; lines that packs copy.
    """
    tile_rows, vectors, split = tile_shape(point["tile"])
    if split:
        return _split_amounts(space, tile_rows, vectors, split, int(point["unroll"]))
    workload, unroll = space.workload, int(point["unroll"])
    lanes, unit = workload.lanes, workload.arithmetic.depth
    tile_cols = vectors * lanes
    sizes = _sizes(space, point, tile_rows, tile_cols, unit)
    calls = sizes.row_tiles * sizes.col_tiles * sizes.chunks
    words = sizes.depth * workload.dims.taps / unit
    latency = ADD_LATENCY if workload.adds_apart else LATENCY
    busy = max(
        tile_rows * vectors * (2 if workload.adds_apart else 1) / UNITS,
        latency,
        (tile_rows + vectors) / LOADS,
    )
    out = dict.fromkeys(NAMES, 0.0)
    out["multiply_adds"] = calls * words * busy * _computed_share(sizes, tile_cols, lanes)
    out["loads"] = calls * words * (tile_rows + vectors) / LOADS
    enough = ENOUGH * latency / LATENCY
    out["few_chains"] = calls * words * max(0, enough - tile_rows * vectors) / UNITS
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
    lead = prod(workload.extents[dim] for dim in workload.dims.lead)
    return out if lead == 1 else {name: amount * lead for name, amount in out.items()}


def _sizes(space: Space, point: Point, rows: int, cols: int, unit: int) -> _Sizes:
    extents, dims = space.part_of(point, rows, cols), space.workload.dims
    if dims.image == "A":
        down = _down_images(
            extents[dims.row], extents["oh"], extents["n"], int(point["image_rows"]), rows
        )
    else:
        down = _down(extents[dims.row], int(point["rows"]), rows)
    across = _across(extents[dims.col], int(point["cols"]), cols)
    return _Sizes(*down, *across, *_deep(extents[dims.stream], int(point["depth"]), unit))


@lru_cache(maxsize=4096)
def _down(row: int, wanted: int, unit: int) -> tuple[int, int, int, int, int]:
    tiles = ceil(row / unit)
    block = min(equal_block(row, wanted, unit), tiles * unit)
    return row, row, tiles, block, ceil(row / block)


@lru_cache(maxsize=4096)
def _down_images(
    row: int, lines: int, images: int, wanted: int, unit: int
) -> tuple[int, int, int, int, int]:
    tiles, block = ceil(row / unit), equal_block(lines, wanted, 1)
    all_lines = lines * images
    return row, row * all_lines, tiles * all_lines, block * row, ceil(lines / block) * images


@lru_cache(maxsize=4096)
def _across(width: int, wanted: int, unit: int) -> tuple[int, int, int, int]:
    tiles = ceil(width / unit)
    block = min(equal_block(width, wanted, unit), tiles * unit)
    return width, tiles, block, ceil(width / block)


@lru_cache(maxsize=4096)
def _deep(reduction: int, wanted: int, unit: int) -> tuple[int, int]:
    depth = balanced_chunk(reduction, wanted, unit)
    return depth, ceil(reduction / depth)


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
    size, taps = space.problem.element.bytes, space.workload.dims.taps
    calls = sizes.row_tiles * sizes.col_tiles * sizes.chunks
    visits = sizes.col_blocks * sizes.row_blocks * sizes.chunks
    row = sizes.depth * size
    strip, panel = rows * row, cols * row * taps
    block_a, block_b = sizes.block_rows * row, sizes.block_cols * row * taps
    a_packed, b_packed = bool(point["pack_a"]), bool(point["pack_b"])
    stored_a, stored_b = space.workload.stored["A"], space.workload.stored["B"]
    caches = space.target.l1_bytes, space.target.l2_bytes
    a = _held("a", a_packed, stored_a.stride, row, *caches)
    b = _held("b", b_packed, stored_b.stride, cols * size, *caches)
    if point["outer"] == "cols":  # a panel of B stays while the block of A passes by
        again_a, again_b = float(block_a), panel + strip * a.l1_weight / b.l1_weight
    else:
        again_a, again_b = strip + panel * b.l1_weight / a.l1_weight, float(block_b)
    first_a, first_b = visits * block_a, visits * block_b
    a.add_lines(out, min(first_a, calls * strip), block_a if a_packed else stored_a.total)
    a.add_lines(out, max(0, calls * strip - first_a), again_a)
    b.add_lines(out, min(first_b, calls * panel), block_b if b_packed else stored_b.total)
    b.add_lines(out, max(0, calls * panel - first_b), again_b)


class _Held(NamedTuple):
    """How an operand sits in the caches: packed without gaps, or as rows at a stride.

    Rows whose stride shares a large power of two with a cache's way fall on few of its
    sets, so that they fill it sooner.

    Attributes:
        l1_weight, l2_weight: bytes that one byte takes of the cache.
        l1_bytes, l2_bytes: of the cache, what counts as ours.
        from_l2, from_l3: the costs of lines that come from there.
    """

    l1_weight: float
    l2_weight: float
    l1_bytes: float
    l2_bytes: float
    from_l2: str
    from_l3: str

    def add_lines(self, out: dict[str, float], read: float, held: float) -> None:
        """Add the lines of `read` bytes, of which `held` have to stay to be found again."""
        if held * self.l2_weight > self.l2_bytes:
            out[self.from_l3] += read / LINE
        elif held * self.l1_weight > self.l1_bytes:
            out[self.from_l2] += read / LINE


@lru_cache(maxsize=1024)
def _held(
    name: str, is_packed: bool, stride: int, row_bytes: int, l1_bytes: int, l2_bytes: int
) -> _Held:
    def weight(way: int) -> float:
        return 1.0 if is_packed else max(1.0, gcd(stride, way) / row_bytes)

    kind = name if is_packed else f"{name}_rows"
    return _Held(
        l1_weight=weight(PAGE),
        l2_weight=weight(l2_bytes // L2_WAYS),
        l1_bytes=SHARE * l1_bytes,
        l2_bytes=SHARE * l2_bytes,
        from_l2=f"{kind}_from_l2",
        from_l3=f"{kind}_from_l3",
    )


def _packs(out: dict[str, float], space: Space, point: Point, sizes: _Sizes, cols: int) -> None:
    """Lines that packs copy."""
    size = space.problem.element.bytes
    if point["pack_b"] and not space.workload.stored["B"].is_packed_ahead:
        reduction = sizes.depth * sizes.chunks * space.workload.dims.taps
        lines = reduction * sizes.col_tiles * cols * size / LINE
        whole = lines * LINE > SHARE * space.target.l2_bytes
        if point.get("prefetch") and sizes.chunks * sizes.col_blocks > 1:
            out["fetched_b"] = lines
        else:
            out["packed_b_far" if whole else "packed_b"] = lines
    if point["pack_a"]:
        halo = 1.0
        if isinstance(space.problem, Conv2d) and space.workload.dims.image == "A":
            image_rows = sizes.block_rows / sizes.row
            reach = space.problem.dilation * (space.problem.kh - 1)
            halo = space.problem.stride**2 * (1 + reach / image_rows)
        times = sizes.col_blocks
        lines = sizes.rows * halo * sizes.depth * sizes.chunks * size / LINE
        out["packed_a"] = lines * times


def _split_amounts(
    space: Space, rows: int, cols: int, vectors: int, unroll: int
) -> dict[str, float]:
    """A tile of single columns: both factors are read along the reduction."""
    workload, dims = space.workload, space.workload.dims
    height, width = workload.extents[dims.row], workload.extents[dims.col]
    calls = ceil(height / rows) * ceil(width / cols)
    lanes = vectors * workload.lanes
    words = ceil(workload.extents[dims.stream] / lanes)
    chains = rows * cols * vectors
    out = dict.fromkeys(NAMES, 0.0)
    busy = max(chains / UNITS, LATENCY, vectors * (rows + cols) / LOADS)
    out["multiply_adds"] = calls * words * busy
    out["steps"] = calls * words / unroll
    out["calls"] = calls * (1 + rows * cols / 2)  # sums within vectors
    return out
