"""The space of convolutions with few channels in a group: their parameters and schedules.

The micro-kernel computes whole lines. So a schedule has a register tile, lines that are jammed,
and blocks of lines and of channels. Packs, streaming and unrolling have a single value each, since
the model, and what searches learn from each other, read them of every point.
"""

from itertools import product
from typing import Literal

from tilewise.kernels.problem import Conv2d
from tilewise.kernels.schedule import (
    Jam,
    Nontemporal,
    Register,
    Schedule,
    Step,
    Tile,
    begin,
)
from tilewise.search.space.division import block_steps, parallel_steps, part_extents
from tilewise.search.space.parameters import Choice, Parameter, RegisterTile, Size
from tilewise.search.space.points import WHOLE, Point, TilePoint
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
    lines, channels = workload.extents["oh"], workload.extents["co"]
    has_lines = workload.dims.row != "oh"
    chosen = [
        RegisterTile("tile", _tiles(workload)),
        Parameter("unroll", (1,)),
        Choice("outer", ("cols", "rows")),
        Choice("pack_a", (False,)),
        Choice("pack_b", (False,)),
        Size("depth", (WHOLE,), workload.extents[workload.dims.stream]),
        _size("cols", WANTED_CHANNELS, channels),
        _size("image_rows", WANTED_LINES, lines),
        Parameter("lines", tuple(range(1, 1 + min(lines, MOST_LINES if has_lines else 1)))),
        Choice("nontemporal", (False, True) if _writes_whole_vectors(workload) else (False,)),
    ]
    if workload.target.threads > 1:
        chosen.append(Choice("parallel", workload.divisions()))
    return tuple(chosen)


def _size(name: str, sizes: tuple[int, ...], extent: int) -> Size:
    return Size(name, (*(size for size in sizes if size < extent), WHOLE), extent)


def _tiles(workload: Workload) -> tuple[TilePoint, ...]:
    """The tiles that fit the registers and leave the code short."""
    row, col = workload.extents[workload.dims.row], workload.extents[workload.dims.col]
    heights = [*range(1, 1 + min(row, MOST_ROWS))]
    heights += [row] if MOST_ROWS < row <= MOST_WHOLE_ROWS else []
    widths = range(1, 1 + max(1, min(MOST_VECTORS, col // workload.lanes)))
    sums = most_sums(workload)
    fitting = (TilePoint(r, width) for width in widths for r in heights if r * width <= sums)
    return tuple(fitting) or (TilePoint(1, 1),)


def most_sums(workload: Workload) -> int:
    """Accumulators that a register tile may have."""
    problem = workload.problem
    assert isinstance(problem, Conv2d)
    products = workload.dims.taps * workload.extents[workload.dims.stream]
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


def window_schedule(workload: Workload, point: Point) -> Schedule:
    """The schedule that a point means; steps without effect are left out."""
    tail = _tail(workload, point)
    divided = parallel_steps(workload, point, tail)
    extents = part_extents(workload, divided, tail)
    steps: list[Step] = [*divided]
    steps += [Tile("n", 1)] if workload.extents["n"] > 1 else []
    for dim, name in (("oh", "image_rows"), ("co", "cols")):
        unit = begin(workload.problem, *tail.steps).unit(dim)
        steps += block_steps(dim, extents, int(point[name]), unit)
    return Schedule((*steps, *tail.steps))


def _tail(workload: Workload, point: Point) -> Schedule:
    """The register step and what follows it."""
    tile: TilePoint = point["tile"]
    outer: Literal["cols", "rows"] = "cols" if point["outer"] == "cols" else "rows"
    lines = jammed_lines(workload, tile, point["lines"])
    steps: list[Step] = [Register(tile.rows, tile.cols(workload.lanes), outer)]
    steps += [Jam("oh", lines)] if lines > 1 else []
    steps += [Nontemporal()] if point["nontemporal"] else []
    return Schedule(tuple(steps))


def count_windows(parameters: tuple[Parameter, ...], workload: Workload) -> int:
    """The number of different schedules.

    Of a register tile with its lines, a division among threads and a step that may be there or
    not, the blocks of lines and of channels are independent.
    """
    values = {p.name: p.values for p in parameters}
    free = len(values["outer"]) * len(values["nontemporal"])
    base: Point = {p.name: p.values[-1] for p in parameters}
    seen: dict[Schedule, int] = {}
    for tile, lines, parallel in product(
        values["tile"], values["lines"], values.get("parallel", ("none",))
    ):
        point = base | {"tile": tile, "lines": lines, "parallel": parallel}
        whole = window_schedule(workload, point)
        if whole not in seen:
            kinds = [
                {window_schedule(workload, point | {name: value}) for value in values[name]}
                for name in ("image_rows", "cols")
            ]
            seen[whole] = free * len(kinds[0]) * len(kinds[1])
    return sum(seen.values())
