"""The register tiles that a search offers.

Outer tiles have whole vectors of columns. Split tiles have single columns, for results that are too
narrow to fill vectors: a split step sums each element of C in several vectors along the reduction.
A workload is offered split tiles as well where it streams one operand and hardly uses it twice, or
where B is contiguous along the reduction and few rows read it, so that packing does not pay.
Swept tiles read rows of B side by side, whole, once for each group of rows of a result that has
few; interleaved ones take them from several parts of the reduction.
"""

from collections.abc import Sequence

from tilewise.kernels.arithmetic import SlicedWeights
from tilewise.kernels.steps.winograd import outputs_of, why_not_winograd
from tilewise.kernels.target.cores import LINE_BYTES
from tilewise.search.space.algorithms import fetches_panels, nest_of_algorithm, rows_of_algorithms
from tilewise.search.space.points import TilePoint
from tilewise.search.space.workload import Workload

MAX_TILE_ROWS = 16
MAX_TILE_VECTORS = 6

SPLIT_TILE_SIZES = (1, 2, 4, 8, 16)  # rows or columns of C
SPLIT_TILE_VECTORS = (1, 2, 4, 8)  # accumulators of each element of C
SWEPT_DEPTHS = (4, 8, 16, 32)  # rows of B side by side
DEEPEST_SWEPT = 64  # and where several tiles share joined words, whose sums are visited less then
INTERLEAVED = (4, 8)  # streams, each of which has one of the rows side by side
SWEPT_GROUPS = (1, 2)  # cache lines of each row that are read at once, if registers hold them
MAX_SWEPT_ROWS = 32  # of the result
MAX_SWEPT_AHEAD = 8  # of one whose B could be packed ahead
MIN_CHAINS = 8  # multiply-adds under way, each of a vector of sums, that hide their latency
MIN_ADDED_CHAINS = 2  # where sums wait for additions of integers, of one cycle, alone
MAX_THIN_ROWS = 4  # rows of C up to which a B that lies along the reduction is a stream
MAX_ROWS_IN_PLACE = 128  # and up to which packing it can cost more than adding up partial sums
IN_PLACE_SIZES = (2, 3, 4, 6, 8)  # rows or columns of tiles that serve several of both
MIN_SUMS_IN_PLACE = 12  # elements of such a tile: fewer load more than they multiply
TILE = 16  # rows of a matrix tile, and its columns
MATRIX_GRIDS = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1))
MIN_VECTORS_IN_PLACE = 8  # along the reduction, for each addition of partial sums


def register_tiles(workload: Workload) -> tuple[tuple[int, int], ...]:
    """Return (rows, vectors) of the tiles that fit the registers, narrow ones first.

    A step of the reduction needs the tile's accumulators, one row of B, a splat of A, where
    products are added apart one register more, and where words of B are widened as they are
    multiplied a row of their upper halves. No tile is wider than the problem, or than what
    the Winograd algorithm makes of it: 7x7 pixels are 16 tiles of its rows. None has
    fewer accumulators than hide a multiply-add's latency, unless all that fit have.
    """
    how, registers = workload.arithmetic, workload.target.vector_registers
    registers -= 2 if workload.adds_apart else 1
    rows, of_b, sums = _rows(workload), how.multiply_adds, 1
    if isinstance(how, SlicedWeights):  # sums of a block of each slice, and both halves of bytes
        of_b, sums = 2, how.products
    vectors = -(-workload.cols // workload.lanes)
    chains = MIN_CHAINS
    if isinstance(how, SlicedWeights) and not how.instruction.adds:
        chains = MIN_ADDED_CHAINS
    max_rows, max_vectors = min(MAX_TILE_ROWS, rows), min(MAX_TILE_VECTORS, vectors)
    fitting = [
        (tall, wide)
        for wide in range(1, max_vectors + 1)
        for tall in range(1, max_rows + 1)
        if tall * wide * sums + of_b * wide <= registers
    ]
    least = min(chains, max((tall * wide * sums for tall, wide in fitting), default=0))
    return tuple((tall, wide) for tall, wide in fitting if tall * wide * sums >= least)


def _rows(workload: Workload) -> int:
    """Rows of the result by the direct method or by Winograd transforms, whichever are more."""
    if why_not_winograd(workload.problem) is not None:
        return workload.rows  # of pairs of rows there are fewer
    tiles = nest_of_algorithm(workload.problem, f"winograd{min(outputs_of(workload.problem))}")
    return max(workload.rows, tiles.extent(tiles.row))


def tall_tiles(workload: Workload) -> tuple[tuple[int, int], ...]:
    """Return (rows, vectors) of tiles of one vector by all transformed rows, if these are few.

    Its sums, a vector of B and an element of A take all registers. It reads each panel once, and so
    pays where the last cache is far: on Emerald Rapids 25x1 of 7x7x2048->512 by pairs of rows is at
    1.08 times the best direct schedule, 13x2, which reads panels twice, at 0.97, and two calls of
    25x1 for 100 rows at no more than 10x2. No trial elsewhere speaks for it.
    """
    if workload.target.core.far_l3 is None or not fetches_panels(workload):
        return ()
    most = workload.target.vector_registers - 2
    rows = sorted(set(rows_of_algorithms(workload)))
    return tuple((tall, 1) for tall in rows if MIN_CHAINS <= tall <= most)


def fits(tile: TilePoint, registers: int) -> bool:
    """Return whether all partial sums of a tile fit the registers."""
    return tile.rows * tile.vectors * tile.partial_sums + tile.vectors + 1 <= registers


def _chains(tile: TilePoint, registers: int) -> int:
    """Accumulators of a split tile that are added to side by side."""
    if fits(tile, registers):
        return tile.rows * tile.vectors * tile.partial_sums
    return tile.partial_sums * (tile.vectors if tile.rows > 1 else 1)


def matrix_tiles(workload: Workload) -> tuple[TilePoint, ...]:
    """Return the tiles of a target with matrix tiles: grids whose sums fit the tile registers.

    Where a result has more than `MAX_SWEPT_ROWS` rows a space has no others: the peak of other
    instructions is a tenth. With fewer rows, reading B decides, and trials do.
    """
    if workload.tile_arithmetic is None:
        return ()
    if workload.problem.quantised_weights:  # whose sums of C take the vector registers
        return (TilePoint(TILE, 1, "matrix"),)
    most = (-(-workload.rows // TILE), -(-workload.cols // TILE))
    grids = [(tall, wide) for tall, wide in MATRIX_GRIDS if tall <= most[0] and wide <= most[1]]
    return tuple(TilePoint(tall * TILE, wide, "matrix") for tall, wide in grids)


def split_tiles(workload: Workload) -> tuple[TilePoint, ...]:
    """Return the tiles with partial sums to offer; none if columns of B fill vectors."""
    registers = workload.target.vector_registers
    if workload.nest.image or workload.problem.zero or workload.problem.quantised_weights:
        return ()
    if not is_thin(workload):
        return _tiles_in_place(workload) if reads_in_place(workload) else ()
    tiles = [
        TilePoint(rows, cols, "split", partial_sums=vectors)
        for vectors in SPLIT_TILE_VECTORS
        for cols in _sizes(workload.cols)
        for rows in _sizes(workload.rows)
        if vectors == 1 or vectors * workload.lanes <= workload.depth
    ]
    able = [t for t in tiles if _chains(t, registers) + t.vectors + 1 <= registers]
    wanted = min(MIN_CHAINS, max(_chains(t, registers) for t in able))
    return tuple(t for t in able if _chains(t, registers) >= wanted)


def reads_in_place(workload: Workload) -> bool:
    """Return whether tiles of several rows and columns may read both factors along k."""
    problem = workload.problem
    if workload.nest.image or is_thin(workload):
        return False
    is_along = problem.transpose_b and not problem.transpose_a
    is_deep = workload.depth >= MIN_VECTORS_IN_PLACE * workload.lanes
    few_rows = workload.rows <= MAX_ROWS_IN_PLACE
    return is_along and is_deep and few_rows and not workload.b.is_constant


def _tiles_in_place(workload: Workload) -> tuple[TilePoint, ...]:
    """Tiles whose sums fit the registers, a vector for each, and are worth what they load."""
    tiles = [
        TilePoint(rows, cols, "split", partial_sums=1)
        for cols in IN_PLACE_SIZES
        for rows in IN_PLACE_SIZES
        if rows <= workload.rows and cols <= workload.cols and rows * cols >= MIN_SUMS_IN_PLACE
    ]
    return tuple(tile for tile in tiles if fits(tile, workload.target.vector_registers))


def skinny_tiles(workload: Workload) -> tuple[TilePoint, ...]:
    """Return the skinny GEMM tiles to offer; none for many rows or a transposed B.

    Those with the fewest tiles of rows come first, and those with one more behind them; then those
    that share joined words and have half of the registers for sums.
    """
    if not _is_skinny(workload):
        return ()
    all_rows = workload.rows
    deep, size = workload.skinny_arithmetic.depth, workload.problem.element.bytes
    free = workload.target.vector_registers - deep - 2
    line = max(1, LINE_BYTES // (workload.lanes * size))
    wanted = (*(groups * line for groups in SWEPT_GROUPS), max(1, free // all_rows))
    widths = sorted({min(width, line * max(SWEPT_GROUPS)) for width in wanted})
    fewest = {w: -(-all_rows // min(all_rows, free // w)) for w in widths if w <= free}
    shapes = [(-(-all_rows // (fewest[w] + more)), w) for more in (0, 1) for w in fewest]
    shapes += [(rows_sharing(workload, w), w) for w in fewest if may_share_words(workload, w)]
    skinny = tuple(
        TilePoint(rows, width, "sweep", depth=depth)
        for rows, width in dict.fromkeys(shapes)
        for depth in (*SWEPT_DEPTHS, DEEPEST_SWEPT)
        if depth % deep == 0 and depth <= workload.depth
        if depth < DEEPEST_SWEPT or (may_share_words(workload, width) and rows < all_rows)
    )
    return skinny + _interleaved_tiles(workload, list(fewest))


def may_share_words(workload: Workload, width: int) -> bool:
    """Return whether tiles so wide share words that are interleaved once."""
    deep = workload.skinny_arithmetic.depth
    return deep > 1 and width % deep == 0 and workload.rows > 1


def rows_sharing(workload: Workload, width: int) -> int:
    """Return the rows of a tile whose sums fit the registers together with the words."""
    sums = workload.target.vector_registers // 2  # the others have words
    return min(max(1, sums // width), workload.rows)


def _interleaved_tiles(workload: Workload, widths: Sequence[int]) -> tuple[TilePoint, ...]:
    """The skinny tiles of a single row that read parts of B, for words that registers hold.

    Of more rows, joined words of more rows of B at once are worth more than longer streams.
    """
    if workload.rows > 1 or not workload.has_far_b:
        return ()
    deep, registers = workload.skinny_arithmetic.depth, workload.target.vector_registers
    return tuple(
        TilePoint(1, width, "sweep", depth=streams, streams=streams)
        for width in widths
        for streams in INTERLEAVED
        if streams % deep == 0 and streams <= workload.depth
        if deep == 1 or streams // deep + width + deep + 1 <= registers
    )


def joins_for_few_rows(workload: Workload) -> bool:
    """Return whether a far B is packed with several rows interleaved, for few result rows."""
    if workload.nest.image or not workload.packs_rows_of_b or not workload.has_far_b:
        return False
    how = workload.arithmetic
    return (how.depth > 1 or how.is_narrow) and workload.rows <= MAX_SWEPT_ROWS


def _is_skinny(workload: Workload) -> bool:
    """Whether rows of B can be read side by side, and B is used too seldom to be packed for it."""
    problem, rows = workload.problem, workload.rows
    reads_rows = not (workload.nest.image or problem.transpose_b or problem.zero)
    if not reads_rows or (problem.transpose_a and rows > 1):
        return False
    return rows <= (MAX_SWEPT_AHEAD if workload.b.is_constant else MAX_SWEPT_ROWS)


def is_thin(workload: Workload) -> bool:
    """Return whether a row of C leaves most lanes idle, or B is transposed and rarely reused."""
    problem, rows = workload.problem, workload.rows
    if problem.transpose_a and rows > 1:
        return False
    is_narrow = 2 * workload.cols <= workload.lanes
    return is_narrow or (rows <= MAX_THIN_ROWS and problem.transpose_b)


def _sizes(extent: int) -> list[int]:
    """Return powers of two up to the extent, and an extent that is less than the largest."""
    return sorted({min(size, extent) for size in SPLIT_TILE_SIZES})
