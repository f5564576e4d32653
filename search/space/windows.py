"""The parameters of convolutions with few channels in a group.

The micro-kernel computes whole lines. So a schedule has a register tile, lines that are jammed,
and blocks of lines and of channels. Packs, streaming and unrolling have a single value each, since
the model, and what searches learn from each other, read them of every point.
"""

from tilewise.search.space.parameters import Choice, Parameter, RegisterTile, Size
from tilewise.search.space.points import WHOLE, TilePoint
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


def window_parameters(workload: Workload) -> tuple[Parameter, ...]:
    """The parameters, in their order; some have a single value."""
    lines, channels = workload.nest.extent("oh"), workload.nest.extent("co")
    has_lines = workload.nest.row != "oh"
    chosen = [
        RegisterTile("tile", _tiles(workload)),
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
    if workload.target.threads > 1:
        chosen.append(Choice("parallel", workload.divisions()))
    return tuple(chosen)


def _tiles(workload: Workload) -> tuple[TilePoint, ...]:
    """The tiles that fit the registers and leave the code short."""
    row = workload.rows
    heights = [*range(1, 1 + min(row, MOST_ROWS))]
    heights += [row] if MOST_ROWS < row <= MOST_WHOLE_ROWS else []
    widths = range(1, 1 + max(1, min(MOST_VECTORS, workload.cols // workload.lanes)))
    sums = most_sums(workload)
    fitting = (TilePoint(r, width) for width in widths for r in heights if r * width <= sums)
    return tuple(fitting) or (TilePoint(1, 1),)


def most_sums(workload: Workload) -> int:
    """Accumulators that a register tile may have."""
    products = workload.nest.taps * workload.depth
    return min(workload.target.vector_registers - FREE_REGISTERS, MOST_PRODUCTS // products)


def jammed_lines(workload: Workload, tile: TilePoint, wanted: int) -> int:
    """The lines that a tile has beside its rows: no more than registers hold."""
    fitting = most_sums(workload) // (tile.rows * tile.vectors)
    return max(1, min(wanted, fitting))


def _writes_whole_vectors(workload: Workload) -> bool:
    """Whether a result that begins at a cache line lies in whole vectors throughout."""
    problem = workload.problem
    row = problem.operand_shapes["C"][-1]
    return workload.lanes == workload.target.lanes(problem.element.name) and not (
        row % workload.lanes
    )
