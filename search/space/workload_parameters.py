"""The parameters of a workload: register tiles, packs, sizes of blocks, divisions among threads."""

from tilewise.kernels.arithmetic import must_pack
from tilewise.search.space.algorithms import algorithm_parameters, fetches_panels
from tilewise.search.space.parameters import Choice, Parameter, RegisterTile, Size
from tilewise.search.space.points import WHOLE, TilePoint, Value
from tilewise.search.space.tiles import (
    MAX_SWEPT_ROWS,
    joins_for_few_rows,
    matrix_tiles,
    register_tiles,
    skinny_tiles,
    split_tiles,
    tall_tiles,
)
from tilewise.search.space.workload import Workload

MOST_ROWS = 8  # pixels or lines of a register tile
MOST_WHOLE_ROWS = 14  # of a line that is one tile
MOST_VECTORS = 4
MOST_LINES = 4  # that are jammed
FREE_REGISTERS = 3  # for what a step reads
MOST_PRODUCTS = 1024  # multiply-adds of vectors that the code of one tile has

# Sizes of blocks, in lines of the result and in its channels.
WANTED_LINES = (1, 2, 4, 8, 16, 32)
WANTED_CHANNELS = (1, 16, 32, 64, 128, 256, 512)


def _window_parameters(workload: Workload) -> list[Parameter]:
    """The parameters of a depthwise or grouped convolution."""
    lines, channels = workload.nest.extent("oh"), workload.nest.extent("co")
    has_lines = workload.nest.row != "oh"
    return [
        RegisterTile("tile", _grouped_conv_tiles(workload)),
        Parameter("unroll", (1,)),
        Choice("outer", ("cols", "rows")),
        Choice("pack_a", (False,)),
        Choice("pack_b", (False,)),
        Size("depth", (WHOLE,), workload.depth),
        Size.below("cols", WANTED_CHANNELS, channels),
        Size.below("image_rows", WANTED_LINES, lines),
        Parameter("lines", tuple(range(1, 1 + min(lines, MOST_LINES if has_lines else 1)))),
        Choice("nontemporal", (False, True) if _writes_whole_vectors(workload) else (False,)),
    ]


def _grouped_conv_tiles(workload: Workload) -> tuple[TilePoint, ...]:
    """The tiles that fit the registers and leave the code short."""
    row = workload.rows
    heights = [*range(1, 1 + min(row, MOST_ROWS))]
    heights += [row] if MOST_ROWS < row <= MOST_WHOLE_ROWS else []
    widths = range(1, 1 + max(1, min(MOST_VECTORS, workload.cols // workload.lanes)))
    sums = most_sums(workload)
    fitting = (TilePoint(r, width) for width in widths for r in heights if r * width <= sums)
    return tuple(fitting) or (TilePoint(1, 1),)


def most_sums(workload: Workload) -> int:
    """Return how many accumulators a register tile may have."""
    products = workload.nest.taps * workload.depth
    return min(workload.target.vector_registers - FREE_REGISTERS, MOST_PRODUCTS // products)


def jammed_lines(workload: Workload, tile: TilePoint, wanted: int) -> int:
    """Return the numbers of lines of a tile that fit the registers."""
    fitting = most_sums(workload) // (tile.rows * tile.vectors)
    return max(1, min(wanted, fitting))


def _writes_whole_vectors(workload: Workload) -> bool:
    """Whether a result that begins at a cache line lies in whole vectors throughout."""
    problem = workload.problem
    row = problem.operand_shapes["C"][-1]
    is_plain = workload.lanes == workload.target.lanes(problem.element.name)
    return is_plain and not workload.nest.store.finishes_apart and row % workload.lanes == 0


UNROLLS = (1, 2, 4, 8)  # steps of the reduction in one turn of its loop

# Sizes of blocks, in elements of their dim.
SHALLOW_DEPTH = 64  # of a B that few rows wait for: the next block is fetched while one is used
WANTED_DEPTHS = (96, 128, 192, 256, 384, 512, 768, 1024, 2048)
WANTED_COLS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
WANTED_ROWS = (16, 32, 64, 128, 256, 512, 1024)


def parameters_of(workload: Workload) -> tuple[Parameter, ...]:
    """Return the parameters in their order; some have a single value."""
    is_grouped = bool(workload.nest.group)
    chosen = _window_parameters(workload) if is_grouped else _dense_parameters(workload)
    if workload.target.threads > 1:
        chosen.append(Choice("parallel", workload.divisions()))
    return tuple(chosen)


def _dense_parameters(workload: Workload) -> list[Parameter]:
    nest = workload.nest
    unrolls = (1,) if workload.problem.quantised_weights else UNROLLS  # blocks are unrolled
    shallow = [SHALLOW_DEPTH] if joins_for_few_rows(workload) else []
    chosen: list[Parameter] = [
        RegisterTile("tile", _register_tiles(workload)),
        Parameter("unroll", tuple(u for u in unrolls if u <= workload.depth)),
        Choice("outer", ("cols", "rows")),
        Choice("pack_a", _packs(workload, "A")),
        Choice("pack_b", _packs(workload, "B")),
        Size.below("depth", (*shallow, *WANTED_DEPTHS), workload.depth),
        Size.below("cols", WANTED_COLS, workload.cols),
    ]
    if nest.image == "A":
        chosen.append(Size.below("image_rows", WANTED_LINES, nest.extent("oh")))
    else:
        chosen.append(Size.below("rows", WANTED_ROWS, workload.rows))
    if _may_prefetch(workload):
        chosen.append(Choice("prefetch", (False, True)))
    if workload.has_blocks_ahead:
        chosen.append(Choice("chunks", ("inner", "outer")))
    return [*chosen, *algorithm_parameters(workload)]


def _register_tiles(workload: Workload) -> tuple[TilePoint, ...]:
    sides = dict.fromkeys((*register_tiles(workload), *tall_tiles(workload)))
    outer = tuple(TilePoint(rows, vectors) for rows, vectors in sides)
    matrix = matrix_tiles(workload)
    if matrix and workload.rows > MAX_SWEPT_ROWS:
        return matrix
    if workload.problem.quantised_weights:
        return (*outer, *matrix)
    return (*outer, *split_tiles(workload), *skinny_tiles(workload), *matrix)


def _packs(workload: Workload, operand: str) -> tuple[Value, ...]:
    """Whether to pack is a choice only where the operand can be read in place."""
    ways = [workload.arithmetic]
    if workload.tile_arithmetic is not None:
        ways = [workload.tile_arithmetic, *(ways if workload.rows <= MAX_SWEPT_ROWS else [])]
    is_forced = all(operand in must_pack(workload.problem, how) for how in ways)
    return (True,) if is_forced else (False, True)


def _may_prefetch(workload: Workload) -> bool:
    """Whether B comes from farther away than L2: packed row by row, or ahead."""
    if workload.problem.quantised_weights:
        return False
    if fetches_panels(workload):
        return True
    return workload.has_far_b and (workload.packs_rows_of_b or workload.b.is_constant)
