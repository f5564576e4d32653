"""Tiles whose blocks are visited from the nearer end of a matrix that calls read once.

A call leaves the end of the matrix in the second cache. The next one begins there, where it is of
the same matrix: of one that is twice as large as the cache half is read from there.
"""

from collections.abc import Iterable

from tilewise.kernels.arithmetic import must_pack
from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import Alternate, Divide, Step, Tile
from tilewise.search.space.division import balanced_chunk
from tilewise.search.space.tiles import ENDS_MARK, TileShape, is_thin, tile_shape
from tilewise.search.space.workload import Workload

SMALLEST, LARGEST = 0.75, 8.0  # matrices, in sizes of the second cache
BLOCKS = 8  # that fill it: fewer, and the one that it has in part is a larger share
CLOCKLESS = {"neon", "fp-armv8"}  # features of processors whose clock programs cannot read


def tiles_with_ends(workload: Workload, tiles: Iterable[str]) -> tuple[str, ...]:
    """Those of the split and swept tiles that can begin at either end, marked as such."""
    size = workload.stored[streamed(workload)].total / workload.target.threads
    l2_bytes = workload.target.l2_bytes
    is_near = SMALLEST * l2_bytes < size <= LARGEST * l2_bytes
    can_tell = is_near and not workload.target.features & CLOCKLESS
    if not can_tell or not isinstance(workload.problem, Matmul) or workload.dims.lead:
        return ()
    return tuple(f"{tile}{ENDS_MARK}" for tile in tiles if _may_begin_at_end(workload, tile))


def streamed(workload: Workload) -> str:
    """The larger factor."""
    return max("A", "B", key=lambda role: workload.stored[role].total)


def _may_begin_at_end(workload: Workload, tile: str) -> bool:
    """Whether the tile's blocks can be visited in any order, with the same sums."""
    problem, shape = workload.problem, tile_shape(tile)
    assert isinstance(problem, Matmul)
    if shape.swept:
        is_whole = shape.rows == problem.m and shape.streams == 1
        can_sum = is_whole and not workload.swept_arithmetic.offset
        return can_sum and bool(end_steps(workload, shape, workload.extents))
    is_in_place = "B" not in must_pack(problem, workload.split_arithmetic)
    is_read_once = is_thin(workload, problem) and is_in_place
    return is_read_once and bool(end_steps(workload, shape, workload.extents))


def end_steps(workload: Workload, shape: TileShape, extents: dict[str, int]) -> list[Step]:
    """The loop over blocks that begins at either end; none where one block is all there is.

    Args:
        workload: what is computed.
        shape: of the tile.
        extents: of one thread's part.
    """
    dims, role = workload.dims, streamed(workload)
    across = dims.row if role == "A" else dims.col
    dim, other = (dims.stream, dims.col) if shape.swept else (across, dims.stream)
    units = {dims.stream: shape.swept, dims.row: shape.rows, dims.col: shape.width}
    line = extents[other] * workload.problem.element.bytes
    wanted = max(1, workload.target.l2_bytes // (BLOCKS * line))
    size = balanced_chunk(extents[dim], wanted, units[dim])
    if size >= extents[dim]:
        return []
    return [Divide(dim, size) if shape.swept else Tile(dim, size), Alternate(dim)]
