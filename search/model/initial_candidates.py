"""Initial candidates that descents of the model do not reach.

Split, skinny, streamed and joined tiles are few, and what decides between them is how memory
delivers. Points that fetch a far B ahead, block by block, depend on the buffers for lines under
way. Measurements chose both, not the model (docs/experiments/0055).
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd, prod

from tilewise.kernels.block_sizes import equal_block
from tilewise.kernels.nest import Role
from tilewise.search.model.traffic import L2_WAYS, OWN_SHARE, PAGE_BYTES
from tilewise.search.space.parameters import completed
from tilewise.search.space.points import WHOLE, Point, TilePoint
from tilewise.search.space.space import Space
from tilewise.search.space.tiles import (
    DEEPEST_SWEPT,
    MAX_TILE_ROWS,
    SPLIT_TILE_VECTORS,
    TILE,
    fits,
    joins_for_few_rows,
    may_share_words,
    reads_in_place,
    rows_sharing,
    split_tiles,
)

MAX_OF_KIND = 8  # points of one kind of tile that are proposed
FETCHED = 2  # of skinny ones, as many of which are ahead of those with prefetches
SWEPT_AT_ONCE = 8  # rows of a result up to which registers hold all, for a wide tile
WIDENED_AT_ONCE = 4  # and up to which a skinny GEMM widens B as fast as a pack that many rows share
LONG_STREAM = 32  # vectors of a row, from where caches deliver one row at a time best
JOINED_ROWS, JOINED_VECTORS = 4, 4  # a line of i8, and two of bf16
JOINED_COLS = 256
STREAMED_VECTORS = (1, 2)  # of tiles of all rows, with panels that were packed ahead
LINES_VECTORS = (2, 3)  # of tiles of a line of a small image, with such panels
LINES_UNROLL = 2

MATRIX_LEAST_ROWS = 8
MATRIX_FEW_ROWS = 128  # of a result whose panels of B are read once
MATRIX_COLS = 256  # of a block of B that has the whole reduction
MATRIX_STRIP = 1024  # bytes of a row of A in a k-block
PACKED_COLS = 512  # of a block of B beside a packed strip of A
WIDENED_DEPTHS, WIDENED_COLS = (512, 256), (1024, 4096)  # where matrix tiles read widened weights
LEAST_SUMS, LEAST_ROWS, MOST_ROWS = 24, 6, 9  # of tiles that load little for what they multiply
COLS = 128  # of a block of a B that is fetched ahead: two panels or three; of few rows, one
DEEP, SHALLOW = 512, 256  # k-blocks in place; of fewer rows B is packed
UNROLL = 4
NEAR_POINTS = 2
PART_TILE = 8, 2  # rows and vectors of the tiles by which parts of threads are compared
BALANCED = 0.9  # of a division's largest part, from where no smaller one counts
WIDEST = 1.5  # times what a block of columns should have


def plain_point(space: Space) -> Point:
    """Return the point of first values, with nothing cut but into the threads' parts."""
    return completed(space.parameters, {}) | division(space)


def split_points(space: Space) -> Iterator[Point]:
    """Return points of tiles with partial sums along k, large tiles first, without blocks.

    Long rows are read whole, one at a time; of short rows a tile reads all side by side. Where
    several of both factors are, tiles that load least come first, of whole and of short rows.
    """
    registers, workload = space.target.vector_registers, space.workload
    is_long = workload.depth >= LONG_STREAM * workload.lanes

    def rank(tile: TilePoint) -> tuple[bool, int]:
        return fits(tile, registers) == is_long, -tile.rows * tile.vectors

    base = plain_point(space)
    if reads_in_place(workload):
        yield from _points_in_place(space, base)
        return
    for tile in sorted(split_tiles(workload), key=rank):
        unroll = 1 if tile.partial_sums >= max(SPLIT_TILE_VECTORS) else 2
        yield space.wanting(base | {"tile": tile}, unroll=unroll)


def _points_in_place(space: Space, base: Point) -> Iterator[Point]:
    """Points of tiles that read several rows of both factors: little loaded, little cut off."""
    rows, cols = space.workload.rows, space.workload.cols

    def slots(tile: TilePoint) -> float:
        computed = -(-rows // tile.rows) * -(-cols // tile.vectors)
        return computed * (tile.rows * tile.vectors + tile.rows + tile.vectors)

    short = PAGE_BYTES // space.problem.element.bytes  # elements of rows that stay in L1
    for tile in sorted(split_tiles(space.workload), key=slots)[: MAX_OF_KIND // 2]:
        whole = space.wanting(base | {"tile": tile}, unroll=2)
        cut = space.wanting(whole, depth=short)
        yield from (whole,) if cut == whole else (whole, cut)


def streamed_points(space: Space) -> list[Point]:
    """Return points of tiles of all rows, which read each packed panel once.

    The narrow ones come first, which have the fewest columns under way; the model thinks that they
    read A too often. Lines of a small image are such rows: their panels are read once for each
    line, and the first cache has them from the second on where the reduction is cut.
    """
    workload = space.workload
    is_ahead = workload.b.is_constant and workload.has_far_b
    streams = is_ahead and True in space.values("prefetch")
    rows = workload.rows
    if not streams or (workload.nest.image and rows > MAX_TILE_ROWS):
        return []
    base = plain_point(space) | {"prefetch": True, "pack_b": True}
    if not workload.nest.image:
        vectors, base = STREAMED_VECTORS, base | {"pack_a": True}
    else:
        vectors = LINES_VECTORS
        base = space.wanting(base | {"unroll": LINES_UNROLL}, depth=SHALLOW)
    tiles = [TilePoint(rows, width) for width in vectors]
    return [base | {"tile": tile} for tile in tiles if tile in space.values("tile")]


def joined_points(space: Space) -> list[Point]:
    """Return points for few rows that prefetch the next block of packed panels.

    The block is small, and all its lines are fetched one after another: each step of the unrolled
    reduction has rows of the next block, and all tiles of rows together have the whole.
    """
    workload = space.workload
    if not joins_for_few_rows(workload):
        return []
    rows = min(JOINED_ROWS, workload.rows)
    tile = TilePoint(rows, JOINED_VECTORS)
    tiles = -(-workload.rows // rows)
    base = plain_point(space) | {"prefetch": True, "pack_a": True, "pack_b": True, "tile": tile}
    unroll = max(u for u in space.values("unroll") if int(u) <= tiles)
    base = space.wanting(base | {"unroll": unroll}, cols=JOINED_COLS)
    shortest = space.values("depth")[:2]
    return [base | {"depth": depth} for depth in shortest if tile in space.values("tile")]


def matrix_points(space: Space) -> Iterator[Point]:
    """Return points of AMX tiles, which keep one operand in L1 and stream the other.

    A strip of A stays there, packed where the reduction is long, and a block of B in half of the
    second cache. Few rows read each panel of B once; A is the side that streams then, and stays in
    the second cache. Of fewer than `MATRIX_LEAST_ROWS` other kernels read B as fast, and of i8 that
    is not packed ahead of twice as many.
    """
    workload = space.workload
    joins = workload.problem.element.name == "i8" and not workload.b.is_constant
    least = MATRIX_LEAST_ROWS * (2 if joins else 1)
    if workload.tile_arithmetic is None or workload.rows < least:
        return
    base = plain_point(space) | {"pack_b": True}
    tiles = [tile for tile in space.values("tile") if tile.kind == "matrix"]
    tile = max(tiles, key=lambda one: (one.rows * one.vectors, -abs(one.rows - 16 * one.vectors)))
    base |= {"tile": tile}
    if workload.problem.quantised_weights:  # widened panels, and A's strips, in the first cache
        for depth, cols in product(WIDENED_DEPTHS, WIDENED_COLS):
            yield space.wanting(base, depth=depth, cols=cols)
        return
    size, few = workload.problem.element.bytes, workload.rows <= MATRIX_FEW_ROWS
    is_ahead = few and workload.b.is_constant  # it streams from farther away than L2
    base = space.wanting(base | {"outer": "rows"}, unroll=2)
    streamed = space.wanting(base | {"outer": "cols"}, prefetch=is_ahead)
    ways = list[Point]()
    is_long = workload.depth * size > 1.5 * MATRIX_STRIP and not workload.nest.image
    if is_long and workload.rows > TILE and not is_ahead:
        way = space.wanting(base | {"pack_a": True}, cols=PACKED_COLS, rows=2 * tile.rows)
        depth = MATRIX_STRIP // (2 if few else 1) // size
        ways.append(space.wanting(way, depth=depth, chunks="outer"))
    if workload.rows <= TILE:  # C is small, and A stays in the second cache as a whole
        ways.append(streamed)
    elif workload.depth * size <= 4 * MATRIX_STRIP:  # C is visited once
        ways.append(space.wanting(base, cols=MATRIX_COLS))
    for strip in (MATRIX_STRIP, MATRIX_STRIP // 2):
        depth = strip // size if few else 2 * strip // size
        depth = workload.depth if workload.depth <= 1.5 * depth else depth
        cols = space.target.l2_bytes // 2 // (min(depth, workload.depth) * size)
        ways.append(space.wanting(base, depth=depth, cols=cols))
        if few:
            ways.append(space.wanting(streamed, depth=depth))
    if is_ahead:
        ways.sort(key=lambda one: one["outer"] != "cols")
    yield from ways


def skinny_points(space: Space) -> list[Point]:
    """Return one point per skinny GEMM tile, if there are any."""
    base = plain_point(space)
    return [base | {"tile": tile} for tile in space.values("tile") if tile.kind == "sweep"]


def sharing_words(space: Space, skinny: Sequence[Point]) -> list[Point]:
    """Return the points whose tiles share interleaved words, for more rows than a tile has.

    Tiles of equally many rows come first, and with half of the registers for sums. Of each the
    deepest chunks come first, with prefetches where B is far. Without these, and where a row of B
    is longer than a page, processors follow no more than half of its rows.
    """
    workload, deepest = space.workload, DEEPEST_SWEPT
    rows = workload.rows

    def is_sharing(tile: TilePoint) -> bool:
        return may_share_words(workload, tile.vectors) and tile.rows < rows and tile.streams == 1

    sharing = [point["tile"] for point in skinny if is_sharing(point["tile"])]
    narrowest = min((tile.vectors for tile in sharing), default=0)
    if not sharing or rows <= rows_sharing(workload, narrowest):
        return []

    def rank(sides: tuple[int, int]) -> tuple[bool, int, int]:
        tall, wide = sides
        return rows % tall > 0, abs(tall - rows_sharing(workload, wide)), wide

    tiles = sorted({(tile.rows, tile.vectors) for tile in sharing}, key=rank)
    unfetched = deepest // 2 if workload.stored["B"].stride > PAGE_BYTES else deepest
    ways = [(deepest, True), (unfetched, False), (deepest // 2, True)]
    if True not in space.values("prefetch"):
        ways = [(deepest, False), (deepest // 2, False)]
    chosen = sorted(
        product(enumerate(tiles), enumerate(ways)), key=lambda pair: sum(n for n, _ in pair)
    )
    points = [
        space.wanting(
            skinny[0] | {"tile": TilePoint(*sides, "sweep", depth=depth)}, prefetch=fetches
        )
        for (_, sides), (_, (depth, fetches)) in chosen
    ]
    return [p for p in points if p["tile"] in space.values("tile")][:MAX_OF_KIND]


def at_once(space: Space, skinny: Sequence[Point]) -> list[Point]:
    """Return the points that compute all rows at once, those with the deepest k-blocks first.

    Before them come those that are so wide that words are joined in whole vectors.
    Many rows that lie a multiple of a page apart meet in few sets of the first cache; of these,
    few rows come first, in streams that run on from row to row, and where the last cache has B.
    Where rows are longer than a page, which processors follow to its end, the two deepest that read
    whole rows side by side are also among the first with prefetches.
    """
    workload = space.workload
    rows = workload.rows
    can_join = workload.arithmetic.is_narrow and joins_for_few_rows(workload)
    if rows > (WIDENED_AT_ONCE if can_join else SWEPT_AT_ONCE):
        return []
    stored = workload.stored["B"]
    is_near = stored.total <= OWN_SHARE * space.target.l3_bytes
    prefers_runs = is_near or stored.stride % PAGE_BYTES == 0

    def rank(point: Point) -> tuple[bool, bool, int]:
        tile: TilePoint = point["tile"]
        runs_on = tile.depth == tile.streams
        joins_alone = tile.vectors % workload.skinny_arithmetic.depth > 0
        return joins_alone, prefers_runs != runs_on, -tile.depth

    whole = sorted((p for p in skinny if p["tile"].rows == rows), key=rank)
    if stored.stride > PAGE_BYTES and True in space.values("prefetch"):
        fetched = [point | {"prefetch": True} for point in _by_depth(whole)[:FETCHED]]
        whole[FETCHED:FETCHED] = fetched
    return whole[:MAX_OF_KIND]


def _by_depth(skinny: Sequence[Point]) -> list[Point]:
    """The first one of each depth that reads whole rows side by side, in their order."""
    first: dict[int, Point] = {}
    for point in skinny:
        if point["tile"].streams == 1:
            first.setdefault(point["tile"].depth, point)
    return list(first.values())


def division(space: Space) -> Point:
    """Return the division of a batch, of wide columns or else of the longest dim of rows.

    Where its largest part is much larger than that of another division, return the one with the
    smallest, which reads least of the factors.
    """
    values = [str(value) for value in space.values("parallel")]
    if not values:
        return {}
    workload, nest, threads = space.workload, space.workload.nest, space.target.threads
    lead_dims = nest.named(Role.LEAD)
    most = {dim: nest.extent(dim) for dim in lead_dims}
    most[nest.col] = workload.cols // (4 * workload.lanes)
    dims = [dim for dim, parts in most.items() if parts >= threads]
    dims += [*sorted(nest.rows, key=nest.extent, reverse=True), nest.col]
    usual = next((v for v in (f"{dim}={threads}" for dim in dims) if v in values), "none")

    def part(value: str) -> tuple[int, int]:
        """Elements of the result, and rows and columns of the factors."""
        tile = min(PART_TILE[0], workload.rows), PART_TILE[1] * workload.lanes
        extents = space.part_of({"parallel": value}, *tile)
        lead, rows = (prod(map(extents.__getitem__, some)) for some in (lead_dims, nest.rows))
        cols = extents[nest.col]
        return lead * rows * cols, lead * (rows + cols)

    least = min(values, key=part)
    is_balanced = part(least)[0] > BALANCED * part(usual)[0]
    return {"parallel": usual if is_balanced else least}


def fetched_points(space: Space) -> Iterator[Point]:
    """Return points that read B in place or prefetch it, likely ones first; none if L3 is near.

    Rows of a B that share few sets of L2 are packed, all others read in place. Of a far B the
    chunks of the reduction are outside; a near B is not cut.
    """
    workload, problem = space.workload, space.problem
    is_able = space.target.core.far_l3 is not None and False in space.values("pack_b")
    if not is_able or workload.nest.image or workload.rows <= SWEPT_AT_ONCE:
        return
    if problem.transpose_b or workload.b.is_constant:
        return
    base = space.wanting(plain_point(space) | {"outer": "rows"}, unroll=UNROLL)
    deepest = rows_in_l2(space) // 2  # this block, and the next
    if not workload.has_far_b:
        if workload.depth <= rows_in_l2(space):
            yield from (base | {"tile": tile} for tile in _tiles(space)[:NEAR_POINTS])
        return
    cols = COLS if workload.rows > COLS // 2 else COLS // 2
    base = space.wanting(base | {"chunks": "outer", "prefetch": True, "pack_b": False}, cols=cols)
    wide = space.target.l2_bytes // 2 // (DEEP * problem.element.bytes)
    packed = space.wanting(base | {"pack_b": True}, depth=DEEP, cols=wide)
    wanted = DEEP if workload.depth >= 3 * DEEP else (DEEP + SHALLOW) // 2
    ways = [space.wanting(base, depth=min(depth, deepest)) for depth in (wanted, SHALLOW)]
    first, *others = [*ways, packed] if deepest >= SHALLOW else [packed]
    tiles = _tiles(space)
    for way in (first, *others[::-1]):
        yield from (way | {"tile": tile} for tile in tiles if _is_cut(space, way, tile))


def _is_cut(space: Space, point: Point, tile: TilePoint) -> bool:
    """Whether equal blocks of columns can be about as wide as wanted: 43 panels cannot be cut."""
    width = tile.cols(space.workload.lanes)
    cols = space.part_of(point, tile.rows, width)[space.workload.nest.col]
    wanted = point["cols"]
    return wanted == WHOLE or equal_block(cols, int(wanted), width) <= WIDEST * int(wanted)


def rows_in_l2(space: Space) -> int:
    """Return how many rows of B, read in place, keep the same columns in L2."""
    way = space.target.l2_bytes // L2_WAYS
    sets = way // gcd(space.workload.stored["B"].stride, way)
    return max(1, int(OWN_SHARE * L2_WAYS * sets))


def _tiles(space: Space) -> list[TilePoint]:
    """Register tiles that load little, those first that pad the result least."""
    workload, lanes = space.workload, space.workload.lanes
    rows, cols = workload.rows, workload.cols

    def padded(tile: TilePoint) -> float:
        whole, rest = divmod(cols, width := tile.vectors * lanes)
        last = 0 if not rest else lanes if rest <= lanes else width
        return -(-rows // tile.rows) * tile.rows * (whole * width + last)

    able = [
        tile
        for tile in space.values("tile")
        if tile.kind == "outer" and LEAST_ROWS <= tile.rows <= MOST_ROWS
        if tile.rows * tile.vectors >= LEAST_SUMS
    ]
    return sorted(able, key=padded)
