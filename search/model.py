"""An analytical model of a schedule's time, in cycles of the multiply-add units.

After Low, Igual, Smith and Quintana-Orti, Analytical Modeling Is Enough for High-Performance
BLIS (ACM TOMS 43(2), 2016), whose rules choose a register tile by latency times throughput
of the multiply-add units and blocks by what stays in which cache. Here the same
considerations are costs that add up, so that any two schedules can be compared: where the
rules say that a block fits, the cost of reading it falls to that of the nearer cache.

The weights of the costs were fitted, none below zero, to recorded spaces of eight problems
of different kinds (`benchmarks/replay/fit.py`); no term knows any problem.
"""

from dataclasses import dataclass
from math import ceil, log

from kernels.arithmetic import arithmetic
from kernels.problem import Conv2d
from kernels.problem.iteration import is_packed_ahead
from search.parameters import Point, tile_shape
from search.space import Space, balanced_chunk, equal_block

UNITS, LATENCY = 2, 4  # multiply-adds begun in a cycle, and cycles until one ends
LOADS = 2  # vectors loaded in a cycle
SHARE = 0.75  # of a cache that counts as ours; the rest is for what streams by
LINE, PAGE = 64, 4096

COSTS = {
    "multiply_adds": 1.0,
    "steps": 0.1,
    "calls": 12.0,
    "c_lines": 1.0,
    "a_from_l2": 1.0,
    "a_from_l3": 3.0,
    "b_from_l2": 1.0,
    "b_from_l3": 3.0,
    "packed_a": 4.0,
    "packed_b": 4.0,
    "packed_b_far": 4.0,
    "fetched_b": 2.0,
    "a_conflicts": 1.0,
    "b_conflicts": 1.0,
    "packs": 50.0,
}
"""Cycles for each: vector multiply-add slots, loop iterations, micro-kernel calls, cache lines
of C, of A and B from each cache, lines copied, lines whose rows share a cache set, packs."""


def log_time(space: Space, point: Point) -> float:
    """Logarithm of the model's cycles for a point."""
    return log(sum(COSTS[name] * amount for name, amount in amounts(space, point).items()))


@dataclass(frozen=True)
class _Sizes:
    """What one thread computes, and in what pieces.

    Attributes:
        rows, cols: of the result; images and image rows are counted in `rows`.
        row_tiles, col_tiles: micro-tiles that cover them.
        depth, chunks: of the reduction, and how many such there are.
        block_rows, block_cols: of a block, as the steps leave it.
        outer_blocks, row_blocks: how many blocks of columns and of rows there are.
    """

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
    """How much there is of each of `COSTS` in one run of one thread."""
    tile_rows, vectors, split = tile_shape(point["tile"])
    if split:
        return _split_amounts(space, tile_rows, vectors, split, int(point["unroll"]))
    target, taps = space.target, space.dims.taps
    size, lanes = space.problem.element.bytes, space.lanes
    how = arithmetic(space.problem.element.name, target)
    tile_cols = vectors * lanes
    sizes = _sizes(space, point, tile_rows, tile_cols, how.depth)
    calls = sizes.row_tiles * sizes.col_tiles * sizes.chunks
    words = sizes.depth * taps / how.depth
    busy = max(
        tile_rows * vectors * (2 if space.adds_apart else 1) / UNITS,
        LATENCY,
        (tile_rows + vectors) / LOADS,
    )
    out = dict.fromkeys(COSTS, 0.0)
    out["multiply_adds"] = calls * words * busy * _computed_share(sizes, tile_cols, lanes)
    out["steps"] = calls * words / int(point["unroll"])
    out["calls"] = calls
    accumulator = space.problem.element.accumulator_bytes
    out["c_lines"] = (2 * sizes.chunks - 1) * sizes.rows * sizes.cols * accumulator / LINE
    _reads(out, space, point, sizes, (tile_rows, tile_cols), size)
    _packs(out, space, point, sizes, tile_cols, size)
    lead = 1
    for dim in space.dims.lead:
        lead *= space.dims.extent(dim)
    return {name: amount * lead for name, amount in out.items()}


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


def _reads(
    out: dict[str, float],
    space: Space,
    point: Point,
    sizes: _Sizes,
    tile: tuple[int, int],
    size: int,
) -> None:
    """Lines of A and B that a run reads from beyond the first cache."""
    rows, cols = tile
    taps, target = space.dims.taps, space.target
    strip = rows * sizes.depth * size
    panel = cols * sizes.depth * size * taps
    block_a = sizes.block_rows * sizes.depth * size
    block_b = sizes.block_cols * sizes.depth * size * taps
    calls = sizes.row_tiles * sizes.col_tiles * sizes.chunks
    visits_of_blocks = sizes.col_blocks * sizes.row_blocks * sizes.chunks
    if point["outer"] == "cols":
        # A panel of B stays while the block of A passes by.
        near_b, far_a = panel, block_a + panel
        reads_a = calls * strip
        reads_b = calls * panel if panel + strip > SHARE * target.l1_bytes else (
            visits_of_blocks * block_b
        )  # fmt: skip
        level_a, level_b = far_a, max(near_b, 0) if sizes.row_blocks == 1 else block_b
    else:
        reads_b = calls * panel
        reads_a = calls * strip if strip + panel > SHARE * target.l1_bytes else (
            visits_of_blocks * block_a
        )  # fmt: skip
        level_b, level_a = block_b + strip, block_a
    for name, held, reads in (("a", level_a, reads_a), ("b", level_b, reads_b)):
        if held > SHARE * target.l2_bytes:
            out[f"{name}_from_l3"] += reads / LINE
        elif held > SHARE * target.l1_bytes:
            out[f"{name}_from_l2"] += reads / LINE
    if not point["pack_a"]:
        stride = space.problem.operand_shapes[space.dims.operand("A")][-1] * size
        if stride % PAGE == 0:
            out["a_conflicts"] = reads_a / LINE
    if not point["pack_b"]:
        stride = space.problem.operand_shapes[space.dims.operand("B")][-1] * size
        if stride % PAGE == 0 or stride > PAGE:
            out["b_conflicts"] = reads_b / LINE


def _packs(
    out: dict[str, float], space: Space, point: Point, sizes: _Sizes, cols: int, size: int
) -> None:
    """Lines that packs copy, and how often they start."""
    if point["pack_b"] and not is_packed_ahead(space.problem, "B"):
        reduction = sizes.depth * sizes.chunks * space.dims.taps
        lines = reduction * sizes.col_tiles * cols * size / LINE
        whole = lines * LINE > SHARE * space.target.l2_bytes
        if point.get("prefetch"):
            out["fetched_b"] = lines
        else:
            out["packed_b_far" if whole else "packed_b"] = lines
        out["packs"] += sizes.col_blocks * sizes.chunks
    if point["pack_a"]:
        halo = 1.0
        if isinstance(space.problem, Conv2d) and space.dims.image == "A":
            halo = space.problem.stride**2
            if int(point["image_rows"]):
                halo *= 1 + (space.problem.kh - 1) / int(point["image_rows"])
        times = sizes.col_blocks
        lines = sizes.rows * halo * sizes.depth * sizes.chunks * size / LINE
        out["packed_a"] = lines * times
        out["packs"] += times * sizes.row_blocks * sizes.chunks


def _split_amounts(
    space: Space, rows: int, cols: int, vectors: int, unroll: int
) -> dict[str, float]:
    """A tile of single columns: both factors are read along the reduction."""
    dims = space.dims
    height, width = dims.extent(dims.row), dims.extent(dims.col)
    calls = ceil(height / rows) * ceil(width / cols)
    lanes = vectors * space.lanes
    words = ceil(dims.extent(dims.stream) / lanes)
    chains = rows * cols * vectors
    out = dict.fromkeys(COSTS, 0.0)
    busy = max(chains / UNITS, LATENCY, vectors * (rows + cols) / LOADS)
    out["multiply_adds"] = calls * words * busy
    out["steps"] = calls * words / unroll
    out["calls"] = calls * (1 + rows * cols / 2)  # sums within vectors
    return out
