"""Points of tiles that descents do not begin with: split, swept, streamed and joined ones.

They are few, and what decides between them is how memory delivers: measurements chose them, not the
model.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from tilewise.kernels.nest import Role
from tilewise.search.model.traffic import OWN_SHARE, PAGE_BYTES
from tilewise.search.space.methods.algorithms import ALGORITHM, DIRECT, WANTED
from tilewise.search.space.points import WHOLE, Point, TilePoint
from tilewise.search.space.space import Space
from tilewise.search.space.tiles import (
    DEEPEST_SWEPT,
    MAX_TILE_ROWS,
    SPLIT_TILE_VECTORS,
    fits,
    joins_for_few_rows,
    may_share_words,
    reads_in_place,
    rows_sharing,
    split_tiles,
)

MAX_SPLIT_POINTS = 8  # points of split tiles that are proposed
MAX_SWEPT_POINTS = 7  # of swept ones that hold all rows
FETCHED_AT, FETCHED = 2, 2  # place among these of those with prefetches, and how many
MAX_SHARED_POINTS = 4  # of swept ones that share joined words
SWEPT_AT_ONCE = 8  # rows of a result up to which registers hold all, for a wide tile
WIDENED_AT_ONCE = 4  # and up to which a sweep widens B as fast as a pack that many rows share
LONG_STREAM = 32  # vectors of a row, from where caches deliver one row at a time best
SHORT_ROWS = 1024  # elements of rows of which a tile reads several
JOINED_ROWS, JOINED_VECTORS = 4, 4  # a line of i8, and two of bf16
JOINED_COLS, JOINED_DEPTHS = 256, (64, 96)
STREAMED_VECTORS = (1, 2)  # of tiles of all rows, beside panels that were packed ahead
LINES_VECTORS = (2, 3)  # of tiles of a line of a small image, beside such panels
LINES_DEPTH, LINES_UNROLL = 256, 2


def split_points(space: Space) -> Iterator[Point]:
    """Points of split tiles, where there are any: large tiles first, nothing else cut.

    Long rows are read whole, one at a time; of short rows a tile reads all side by side. Where
    several of both factors are, tiles that load least come first, of whole and of short rows.
    """
    registers, workload = space.target.vector_registers, space.workload
    is_long = workload.depth >= LONG_STREAM * workload.lanes

    def rank(tile: TilePoint) -> tuple[bool, int]:
        return fits(tile, registers) == is_long, -tile.rows * tile.vectors

    base: Point = {p.name: p.values[0] for p in space.parameters}
    base |= dict.fromkeys(("depth", "cols", "rows"), WHOLE)
    base |= division(space)
    if reads_in_place(workload):
        yield from _points_in_place(space, base)
        return
    for tile in sorted(split_tiles(workload), key=rank):
        wanted = 1 if tile.partial_sums >= max(SPLIT_TILE_VECTORS) else 2
        unroll = wanted if wanted in space.values("unroll") else 1
        yield base | {"tile": tile, "unroll": unroll}


def _points_in_place(space: Space, base: Point) -> Iterator[Point]:
    """Points of tiles that read several rows of both factors: little loaded, little cut off."""
    rows, cols = space.workload.rows, space.workload.cols

    def slots(tile: TilePoint) -> float:
        computed = -(-rows // tile.rows) * -(-cols // tile.vectors)
        return computed * (tile.rows * tile.vectors + tile.rows + tile.vectors)

    depth = space.nearest_size("depth", SHORT_ROWS)  # of rows that stay in the first cache
    for tile in sorted(split_tiles(space.workload), key=slots)[: MAX_SPLIT_POINTS // 2]:
        unroll = 2 if 2 in space.values("unroll") else 1
        for chunk in dict.fromkeys((WHOLE, depth)):
            yield base | {"tile": tile, "unroll": unroll, "depth": chunk}


def streamed_points(space: Space) -> list[Point]:
    """Points of tiles of all rows, which read panels that were packed ahead once, end to end.

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
    base: Point = {p.name: p.values[0] for p in space.parameters}
    base |= {
        name: WHOLE for name in ("depth", "cols", "rows", "image_rows", WANTED) if name in base
    }
    base |= division(space) | {"prefetch": True, "pack_b": True}
    if not workload.nest.image:
        vectors, base = STREAMED_VECTORS, base | {"pack_a": True}
    else:
        vectors = LINES_VECTORS
        base |= {"depth": space.nearest_size("depth", LINES_DEPTH), "unroll": LINES_UNROLL}
        base |= {ALGORITHM: DIRECT} if ALGORITHM in base else {}
    tiles = [TilePoint(rows, width) for width in vectors]
    return [base | {"tile": tile} for tile in tiles if tile in space.values("tile")]


def joined_points(space: Space) -> list[Point]:
    """Points of panels that few rows wait for, while the next block is fetched.

    The block is small, and all its lines are fetched one after another: each step of the unrolled
    reduction has rows of the next block, and all tiles of rows together have the whole.
    """
    workload = space.workload
    if not joins_for_few_rows(workload):
        return []
    rows = min(JOINED_ROWS, workload.rows)
    tile = TilePoint(rows, JOINED_VECTORS)
    tiles = -(-workload.rows // rows)
    base: Point = {p.name: p.values[0] for p in space.parameters} | {"rows": WHOLE}
    base |= division(space) | {"prefetch": True, "pack_a": True, "pack_b": True, "tile": tile}
    base |= {"cols": space.nearest_size("cols", JOINED_COLS)}
    base |= {"unroll": max(u for u in space.values("unroll") if int(u) <= tiles)}
    depths = dict.fromkeys(space.nearest_size("depth", depth) for depth in JOINED_DEPTHS)
    return [base | {"depth": depth} for depth in depths if tile in space.values("tile")]


def swept_points(space: Space) -> list[Point]:
    """Points of swept tiles, one for each; none where no tile is swept."""
    base: Point = {p.name: p.values[0] for p in space.parameters}
    base |= dict.fromkeys(("depth", "cols", "rows"), WHOLE)
    base |= division(space)
    return [base | {"tile": tile} for tile in space.values("tile") if tile.kind == "sweep"]


def sharing_words(space: Space, swept: Sequence[Point]) -> list[Point]:
    """Those whose tiles share joined words, for more rows than one such tile has.

    Tiles of equally many rows come first, and with half of the registers for sums. Of each the
    deepest chunks come first, with prefetches where B is far. Without these, and where a row of B
    is longer than a page, processors follow no more than half of its rows.
    """
    workload, deepest = space.workload, DEEPEST_SWEPT
    rows = workload.rows

    def is_sharing(tile: TilePoint) -> bool:
        return may_share_words(workload, tile.vectors) and tile.rows < rows and tile.streams == 1

    sharing = [point["tile"] for point in swept if is_sharing(point["tile"])]
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
        swept[0]
        | {"tile": TilePoint(tall, wide, "sweep", depth=depth)}
        | ({"prefetch": True} if fetches else {})
        for (_, (tall, wide)), (_, (depth, fetches)) in chosen
    ]
    return [p for p in points if p["tile"] in space.values("tile")][:MAX_SHARED_POINTS]


def at_once(space: Space, swept: Sequence[Point]) -> list[Point]:
    """Those that hold few rows, all at once: the deep ones first, which prefetchers follow best.

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
        joins_alone = tile.vectors % workload.swept_arithmetic.depth > 0
        return joins_alone, prefers_runs != runs_on, -tile.depth

    whole = sorted((p for p in swept if p["tile"].rows == rows), key=rank)
    if stored.stride > PAGE_BYTES and True in space.values("prefetch"):
        fetched = [point | {"prefetch": True} for point in _by_depth(whole)[:FETCHED]]
        whole[FETCHED_AT:FETCHED_AT] = fetched
    return whole[:MAX_SWEPT_POINTS]


def _by_depth(swept: Sequence[Point]) -> list[Point]:
    """The first one of each depth that reads whole rows side by side, in their order."""
    first: dict[int, Point] = {}
    for point in swept:
        if point["tile"].streams == 1:
            first.setdefault(point["tile"].depth, point)
    return list(first.values())


def division(space: Space) -> Point:
    """The columns, else the dim with most to divide: then no thread packs what another packs."""
    divisions = [str(value) for value in space.values("parallel") if "," not in str(value)]
    if not divisions:
        return {}
    threads, nest = space.target.threads, space.workload.nest
    wanted = [(dim, nest.extent(dim)) for dim in nest.named(Role.LEAD)]
    wanted.append((nest.col, space.workload.cols // (4 * space.workload.lanes)))
    for dim, parts in wanted:
        if f"{dim}={threads}" in divisions and parts >= threads:
            return {"parallel": f"{dim}={threads}"}
    rows = [dim for dim in nest.rows if f"{dim}={threads}" in divisions]
    if not rows:
        return {"parallel": divisions[-1]}
    return {"parallel": f"{max(rows, key=nest.extent)}={threads}"}
