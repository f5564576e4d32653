"""The schedule that a point of a workload's space means: the one place that makes steps of points.

Steps without effect are left out.
"""

from typing import NamedTuple

from tilewise.kernels.arithmetic import Arithmetic, must_pack
from tilewise.kernels.instructions import WITH_CHOICE
from tilewise.kernels.nest import Nest, Role
from tilewise.kernels.schedule import (
    InstructionChoice,
    Interleave,
    Jam,
    Nontemporal,
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Sweep,
    Tile,
    Unroll,
    begin,
)
from tilewise.kernels.steps.algorithm import AlgorithmStep
from tilewise.kernels.steps.parallel import part_size
from tilewise.search.space.algorithms import (
    PAST_CACHES,
    WANTED,
    channels_of,
    fetches_panels,
    step_of,
)
from tilewise.search.space.division import balanced_chunk, equal_block
from tilewise.search.space.points import Point, TilePoint
from tilewise.search.space.workload import Workload
from tilewise.search.space.workload_parameters import jammed_lines


def schedule_of(workload: Workload, point: Point) -> Schedule:
    """The schedule that a point means."""
    if workload.nest.group:
        steps = _window_steps(workload, point)
    elif (method := step_of(point)) is not None:
        steps = _transformed_steps(workload, point, method)
    elif point["tile"].kind == "sweep":
        steps = _swept_steps(workload, point)
    else:
        steps = _direct_steps(workload, point)
    return Schedule(tuple(steps))


def part_of(workload: Workload, point: Point, rows: int, cols: int) -> dict[str, int]:
    """The extents of one thread's part, for a register tile of `rows` by `cols`."""
    method, register = step_of(point), Register(rows, cols, "cols")
    micro = (register,) if method is None else (method, register)
    return _part(workload, point, *micro).extents


class _Part(NamedTuple):
    """One thread's part.

    Attributes:
        nest: of the whole, with its register tile.
        steps: that divide it among threads.
        extents: of the part.
    """

    nest: Nest
    steps: list[Step]
    extents: dict[str, int]

    def blocks(self, dim: str, wanted: int) -> list[Step]:
        """Equal blocks of about `wanted`; no step where one block is all there is."""
        size = equal_block(self.extents[dim], wanted, self.nest.unit(dim))
        return [Tile(dim, size)] if size < self.extents[dim] else []


def _part(workload: Workload, point: Point, *micro: Step) -> _Part:
    """Divide a nest, with no more parts of a dim than it has register tiles.

    What divides images, lines or pixels of the direct method divides tiles of others.

    Args:
        workload: what is divided.
        point: has the division.
        micro: the algorithm, if any, and the steps of the micro-kernel.
    """
    nest = begin(workload.problem, *micro)
    wanted = dict.fromkeys((nest.row, nest.col), 1) if nest.algorithm else {}
    for part in str(point.get("parallel", "none")).split(","):
        dim, _, parts = part.partition("=")
        if parts:
            dim = dim if dim in nest.extents else nest.row
            wanted[dim] = wanted.get(dim, 1) * int(parts)
    steps, extents = list[Step](), dict(nest.extents)
    for dim, most in wanted.items():
        unit = nest.unit(dim)
        count = min(most, -(-extents[dim] // unit))
        if count > 1:
            steps.append(Parallel(dim, count))
            extents[dim] = part_size(extents[dim], count, unit)
    return _Part(nest, steps, extents)


def _direct_steps(workload: Workload, point: Point) -> list[Step]:
    tile: TilePoint = point["tile"]
    register, how = _register(workload, tile, point["outer"]), workload.arithmetic
    split: list[Step] = []
    if tile.kind == "split":
        how = workload.split_arithmetic
        point = _packed_for_split(workload, point)
        split = [Split(workload.nest.k, tile.partial_sums * workload.lanes)]
    steps = _outer_steps(workload, point, register)
    return [*steps, *_instruction_steps(workload, how), register, *split, *_unroll(point)]


def _swept_steps(workload: Workload, point: Point) -> list[Step]:
    """Those of a swept tile; of other choices, blocks of columns and the prefetch count."""
    nest, tile = workload.nest, point["tile"]
    register = _register(workload, tile, "cols" if tile.rows == workload.rows else "rows")
    part = _part(workload, point, register)
    steps = [*part.steps, *_one_at_a_time(nest), *part.blocks(nest.col, int(point["cols"]))]
    steps.append(Stream(nest.k, tile.depth))
    steps += [Prefetch("B")] if point.get("prefetch") else []
    steps += _instruction_steps(workload, workload.swept_arithmetic)
    steps += [register, Sweep(nest.col)]
    return steps + ([Interleave(nest.k, tile.streams)] if tile.streams > 1 else [])


def _transformed_steps(workload: Workload, point: Point, method: AlgorithmStep) -> list[Step]:
    """Those of a point whose operands a step transforms."""
    register = _register(workload, point["tile"], "cols")
    part = _part(workload, point, method, register)
    steps = [method, *part.steps]
    steps += part.blocks(part.nest.col, int(point[channels_of(workload)]))
    steps.append(Pack("B"))
    steps += [Prefetch("B")] if point.get("prefetch") and fetches_panels(workload) else []
    steps += part.blocks(part.nest.row, int(point[WANTED]))
    steps += [Pack("A"), register, *_unroll(point)]
    return steps + ([Nontemporal()] if point.get(PAST_CACHES) else [])


def _window_steps(workload: Workload, point: Point) -> list[Step]:
    """Those of a convolution with few channels in a group."""
    tile: TilePoint = point["tile"]
    lines = jammed_lines(workload, tile, point["lines"])
    micro: list[Step] = [_register(workload, tile, point["outer"])]
    micro += [Jam("oh", lines)] if lines > 1 else []
    part = _part(workload, point, *micro)
    steps = [*part.steps, *([Tile("n", 1)] if workload.nest.extent("n") > 1 else [])]
    steps += part.blocks("oh", int(point["image_rows"])) + part.blocks("co", int(point["cols"]))
    return [*steps, *micro, *([Nontemporal()] if point["nontemporal"] else [])]


def _register(workload: Workload, tile: TilePoint, outer: str) -> Register:
    cols = tile.cols(workload.lanes)
    return Register(tile.rows, cols, "cols" if outer == "cols" else "rows")


def _instruction_steps(workload: Workload, how: Arithmetic) -> list[Step]:
    """The step that names the instruction, where processors have several for the type."""
    has_choice = workload.problem.element.name in WITH_CHOICE
    return [InstructionChoice(how.instruction.name)] if has_choice else []


def _unroll(point: Point) -> list[Step]:
    return [Unroll(int(point["unroll"]))] if int(point["unroll"]) > 1 else []


def _one_at_a_time(nest: Nest) -> list[Step]:
    return [Tile(dim, 1) for dim in nest.named(Role.LEAD)]


def _packed_for_split(workload: Workload, point: Point) -> Point:
    """The point with the packs of a split tile, which reads both factors along the reduction.

    It reads A in place, and B where it can; no row of B's next block is fetched ahead.
    """
    packs_b = "B" in must_pack(workload.problem, workload.split_arithmetic)
    return point | {"pack_a": False, "pack_b": packs_b, "prefetch": False}


def _outer_steps(workload: Workload, point: Point, register: Register) -> list[Step]:
    """All steps before the register tile, in the order of the loops."""
    nest, part = workload.nest, _part(workload, point, register)
    steps = [*part.steps, *_one_at_a_time(nest)]
    cols = part.blocks(nest.col, int(point["cols"]))
    chunks = _chunks(workload, int(point["depth"]))
    steps += [*chunks, *cols] if point.get("chunks") == "outer" else [*cols, *chunks]
    if point["pack_b"]:
        steps.append(Pack("B"))
    if point.get("prefetch") and _fetches_b(workload, point, moves=bool(cols or chunks)):
        steps.append(Prefetch("B"))
    if nest.image == "A":
        steps += [Tile("n", 1), *part.blocks("oh", int(point["image_rows"]))]
    else:
        steps += part.blocks(nest.row, int(point["rows"]))
    return steps + ([Pack("A")] if point["pack_a"] else [])


def _fetches_b(workload: Workload, point: Point, moves: bool) -> bool:
    """Whether B has a next block, or lies in panels, to be fetched."""
    if not point["pack_b"]:
        return moves and workload.has_blocks_ahead
    return workload.b.is_constant or (moves and workload.packs_rows_of_b)


def _chunks(workload: Workload, wanted: int) -> list[Step]:
    depth = balanced_chunk(workload.depth, wanted, workload.arithmetic.depth)
    return [Stream(workload.nest.k, depth)] if depth < workload.depth else []
