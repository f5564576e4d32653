"""Points whose far B is fetched ahead, block by block, for products of matrices.

The model adds up lines by the cache that they come from. What the places for lines under way make
of several streams it does not know: measurements chose these points (docs/experiments/0055).
"""

from collections.abc import Iterator
from math import gcd

from tilewise.search.model.kinds_of_points import division
from tilewise.search.model.traffic import L2_WAYS, OWN_SHARE
from tilewise.search.space.division import equal_block
from tilewise.search.space.points import WHOLE, Point, TilePoint
from tilewise.search.space.space import Space

LEAST_SUMS, LEAST_ROWS, MOST_ROWS = 24, 6, 9  # of tiles that load little for what they multiply
LEAST_RESULT_ROWS = 9  # fewer are swept
COLS, COLS_OF_FEW_ROWS, FEW_ROWS = 128, 64, 64  # of a block: two panels or three, or one
DEEP, SHALLOW = 512, 256  # chunks in place; of fewer rows B is packed
DEEP_FROM = 1536  # a reduction that is cut to deep chunks
PACKED = 0.5  # of L2, that a packed block takes
UNROLL = 4
NEAR_POINTS = 2
WIDEST = 1.5  # times what a block of columns should have


def fetched_points(space: Space) -> Iterator[Point]:
    """Points that read B in place, or fetch it, the likely ones first; none where L3 is near.

    Rows of a B that share few sets of L2 are packed, all others read in place. Of a far B the
    chunks of the reduction are outside; a near B is not cut.
    """
    workload, problem = space.workload, space.problem
    is_able = space.target.core.far_l3 is not None and False in space.values("pack_b")
    if not is_able or workload.nest.image or workload.rows < LEAST_RESULT_ROWS:
        return
    if problem.has_transposed_b or workload.b.is_constant:
        return
    base: Point = {p.name: p.values[0] for p in space.parameters}
    base |= dict.fromkeys(("depth", "cols", "rows"), WHOLE) | division(space) | {"outer": "rows"}
    base |= {"unroll": UNROLL} if UNROLL in space.values("unroll") else {}
    deepest = rows_in_l2(space) // 2  # this block, and the next
    if not workload.has_far_b:
        if workload.depth <= rows_in_l2(space):
            yield from (base | {"tile": tile} for tile in _tiles(space)[:NEAR_POINTS])
        return
    cols = COLS_OF_FEW_ROWS if workload.rows <= FEW_ROWS else COLS
    base |= {"cols": space.nearest_size("cols", cols), "chunks": "outer", "prefetch": True}
    wide = int(PACKED * space.target.l2_bytes) // (DEEP * problem.element.bytes)
    packed = base | {"pack_b": True, "depth": space.nearest_size("depth", DEEP)}
    packed |= {"cols": space.nearest_size("cols", wide)}
    wanted = DEEP if workload.depth >= DEEP_FROM else (DEEP + SHALLOW) // 2
    depths = dict.fromkeys(
        space.nearest_size("depth", min(depth, deepest)) for depth in (wanted, SHALLOW)
    )
    ways = [base | {"pack_b": False, "depth": depth} for depth in depths]
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
    """Rows of B, read in place, of which L2 holds the same columns."""
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
