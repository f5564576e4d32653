"""What a schedule reads and copies: cache lines of A and B, by the cache that they come from.

`Sizes` says in what pieces one thread computes its part: blocks, register tiles, k-blocks.
"""

from functools import lru_cache
from math import ceil, gcd, prod
from typing import NamedTuple

from tilewise.kernels.block_sizes import balanced_depth, equal_block
from tilewise.kernels.target.cores import LINE_BYTES
from tilewise.search.space.points import Point
from tilewise.search.space.schedules import unit_of_depth
from tilewise.search.space.space import Space
from tilewise.search.space.workload import Workload


class Sizes(NamedTuple):
    """What one thread computes, and in what pieces, in elements and counts.

    Register tiles and blocks cover the result. `row` is the extent of the dim that tiles cut;
    `rows` include images and image rows. `depth` is that of one of the reduction's `chunks`.
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
        """Return the share of the tiles' columns that are computed."""
        whole, rest = divmod(self.cols, tile_cols)
        last = 0 if not rest else lanes if rest <= lanes else tile_cols
        return (whole * tile_cols + last) / (self.col_tiles * tile_cols)

    def edge_share(self, tile_rows: int, tile_cols: int) -> float:
        """Return the share of tiles that the edge of the result cuts off."""
        rows, cols = self.row % tile_rows > 0, self.cols % tile_cols > 0
        per_row = -(-self.row // tile_rows)
        return 1 - (1 - rows / per_row) * (1 - cols / self.col_tiles)


def sizes_of(space: Space, point: Point, tile_rows: int, tile_cols: int) -> Sizes:
    """Return the parts of a point's schedule, for register tiles of `tile_rows` by `tile_cols`."""
    extents, nest = space.part_of(point, tile_rows, tile_cols), space.workload.nest
    row = extents[nest.row]
    if nest.image == "A":  # tiles lie within a line, and blocks are whole lines
        lines, images = extents["oh"], prod(extents[d] for d in nest.rows if nest.dim(d).single)
        _, block, blocks = _cut(lines, int(point["image_rows"]), 1)
        every = lines * images
        down = row * every, ceil(row / tile_rows) * every, block * row, blocks * images
    else:
        down = row, *_cut(row, int(point["rows"]), tile_rows)
    across = _cut(extents[nest.col], int(point["cols"]), tile_cols)
    unit = unit_of_depth(space.workload.arithmetic_of(point["tile"].kind))
    depth = balanced_depth(extents[nest.k], int(point["depth"]), unit)
    return Sizes(row, *down, extents[nest.col], *across, depth, ceil(extents[nest.k] / depth))


@lru_cache(maxsize=4096)
def _cut(extent: int, wanted: int, unit: int) -> tuple[int, int, int]:
    """Tiles of `unit` that cover an extent, the size of blocks of about `wanted`, their number."""
    block = equal_block(extent, wanted, unit)
    return ceil(extent / unit), block, ceil(extent / block)


PAGE_BYTES = 4096  # also one way of most first caches
L2_WAYS = 16
OWN_SHARE = 0.75  # of a cache that is ours; the rest is for what streams by


class _Held(NamedTuple):
    """How an operand sits in the caches: packed without gaps, or as rows at a stride.

    Rows whose stride shares a large power of two with a cache's way fall on few of its
    sets, and fill it sooner.

    Attributes:
        l1_weight, l2_weight: bytes that one byte takes of the cache.
        l1_bytes, l2_bytes: of the cache, what counts as ours.
        from_l2, from_l3: the amounts that count lines from there.
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
            out[self.from_l3] += read / LINE_BYTES
        elif held * self.l1_weight > self.l1_bytes:
            out[self.from_l2] += read / LINE_BYTES


@lru_cache(maxsize=1024)
def _held(
    name: str, is_packed: bool, stride: int, row_bytes: int, l1_bytes: int, l2_bytes: int
) -> _Held:
    def weight(way: int) -> float:
        return 1.0 if is_packed else max(1.0, gcd(stride, way) / row_bytes)

    kind = name if is_packed else f"{name}_rows"
    return _Held(
        l1_weight=weight(PAGE_BYTES),
        l2_weight=weight(l2_bytes // L2_WAYS),
        l1_bytes=OWN_SHARE * l1_bytes,
        l2_bytes=OWN_SHARE * l2_bytes,
        from_l2=f"{kind}_from_l2",
        from_l3=f"{kind}_from_l3",
    )


def add_reads(
    out: dict[str, float], space: Space, point: Point, sizes: Sizes, tile: tuple[int, int]
) -> None:
    """Add the lines of A and B that micro-kernels read from beyond the first cache.

    A call reads a strip of A and a panel of B. The first reading of a block finds it where
    its pack left it, or where the operand lies. A later reading finds it where it stayed while
    the other operand was read, and in the first cache if both fit there. `tile` has the rows and
    columns of a register tile.
    """
    rows, cols = tile
    workload, caches = space.workload, (space.target.l1_bytes, space.target.l2_bytes)
    size, taps = space.problem.element.bytes, workload.nest.taps
    row = sizes.depth * size
    strip, panel = rows * row, cols * row * taps
    block_a, block_b = sizes.block_rows * row, sizes.block_cols * row * taps
    a_packed, b_packed = bool(point["pack_a"]), bool(point["pack_b"])
    stored_a, stored_b = workload.stored["A"], workload.stored["B"]
    a = _held("a", a_packed, stored_a.stride, row, *caches)
    b = _held("b", b_packed, stored_b.stride, cols * size, *caches)
    if point["outer"] == "cols":  # a panel of B stays while the block of A passes by
        again_a, again_b = float(block_a), panel + strip * a.l1_weight / b.l1_weight
    else:
        again_a, again_b = strip + panel * b.l1_weight / a.l1_weight, float(block_b)
    calls, visits = sizes.calls, sizes.visits
    first_a, first_b = visits * block_a, visits * block_b
    far_a = first_a / sizes.col_blocks if point.get("chunks") == "outer" else first_a
    a.add_lines(out, min(far_a, calls * strip), block_a if a_packed else stored_a.total)
    a.add_lines(out, first_a - far_a, block_a + 2 * block_b)
    a.add_lines(out, max(0, calls * strip - first_a), again_a)
    streams = workload.b.is_constant and b_packed and stored_b.total > b.l2_bytes
    slowed = _slowed_stream(space, rows, bool(point.get("prefetch"))) if streams else 1.0
    held_b = block_b if b_packed and not streams else stored_b.total
    if _fetches_in_place(workload, point, sizes):
        held_b = 2 * block_b  # with the next one
    b.add_lines(out, slowed * min(first_b, calls * panel), held_b)
    b.add_lines(out, max(0, calls * panel - first_b), again_b)


def _slowed_stream(space: Space, rows: int, is_fetched: bool) -> float:
    """How many times as long a line takes of panels that were packed ahead, and are read once."""
    streams = space.target.core.streams
    return max(streams.fetched, 0.0 if is_fetched else streams.unfetched_row * rows)


def add_packs(
    out: dict[str, float], space: Space, point: Point, sizes: Sizes, tile_cols: int
) -> None:
    """Add the lines that packs copy, for register tiles of `tile_cols` columns."""
    if point["pack_b"] and not space.workload.b.is_constant:
        lines = _packed_lines_of_b(space.workload, sizes, tile_cols)
        is_far = lines * LINE_BYTES > OWN_SHARE * space.target.l2_bytes
        moves = sizes.chunks * sizes.col_blocks > 1 and not space.workload.b.is_gathered
        if point.get("prefetch") and moves:
            out["fetched_b"] = lines
        else:
            out["packed_b_far" if is_far else "packed_b"] = lines
    elif _fetches_in_place(space.workload, point, sizes):
        out["fetched_b"] = _packed_lines_of_b(space.workload, sizes, tile_cols)
    if point["pack_a"]:
        out["packed_a"] = _packed_lines_of_a(space.workload, sizes) * sizes.col_blocks


def _fetches_in_place(workload: Workload, point: Point, sizes: Sizes) -> bool:
    """Whether rows of B's next block are fetched, and read where they lie."""
    is_asked = bool(point.get("prefetch")) and not point["pack_b"]
    return is_asked and workload.has_blocks_ahead and sizes.chunks * sizes.col_blocks > 1


def _packed_lines_of_b(workload: Workload, sizes: Sizes, tile_cols: int) -> float:
    """Lines of B's panels, the columns that fill up the last one included."""
    reduction = sizes.depth * sizes.chunks * workload.nest.taps
    return reduction * sizes.col_tiles * tile_cols * workload.problem.element.bytes / LINE_BYTES


def _packed_lines_of_a(workload: Workload, sizes: Sizes) -> float:
    """Lines of A, and of an image the rows that neighbouring blocks share."""
    problem, halo = workload.problem, 1.0
    if workload.nest.image == "A":
        image_rows = sizes.block_rows / sizes.row
        reach = problem.dilations[-2] * (problem.window[-2] - 1)
        down, across = problem.strides[-2:]
        halo = down * across * (1 + reach / image_rows)
        halo *= prod(problem.window[:-2])  # slices are packed for one of the result at a time
    size = problem.element.bytes
    return sizes.rows * halo * sizes.depth * sizes.chunks * size / LINE_BYTES
