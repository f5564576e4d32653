"""Schedules of plain images, changed as little as channels in blocks ask for.

No search looks for them: a schedule that is fast on a plain image has the loops that are fast on
one in blocks, with a chunk of the reduction that ends where a block does, and with register columns
that divide one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tilewise.kernels.channel_blocks import Blocks
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.problem import Conv2d
from tilewise.kernels.schedule import Instruction, Pack, Register, Schedule, Step, Stream, Tile
from tilewise.kernels.schedule.legality import check_legal
from tilewise.kernels.target.model import Target


def in_blocks(
    problem: Conv2d, schedules: Iterable[Schedule], blocks: Blocks, target: Target
) -> tuple[Schedule, ...]:
    """The schedules for images in blocks, each once; none where the changed ones are not legal.

    Args:
        problem: nhwc, of one group.
        schedules: of the plain image.
        blocks: that divide the channels.
        target: whose vectors and registers there are.
    """
    found: dict[str, Schedule] = {}
    for schedule in schedules:
        for register in _registers(problem, schedule, blocks, target):
            made = Schedule(tuple(_steps(problem, schedule, register, blocks)))
            try:
                check_legal(problem, made)
            except ScheduleError:
                continue
            found.setdefault(made.hash, made)
    return tuple(found.values())


def _registers(
    problem: Conv2d, schedule: Schedule, blocks: Blocks, target: Target
) -> Iterator[Register]:
    """The register tile; where its columns do not divide a block, narrower ones of more rows."""
    register, lanes = schedule.register, target.lanes(problem.element.name)
    if not blocks.c or blocks.c % register.cols == 0:
        yield register
        return
    fitting = [cols for cols in range(lanes, register.cols, lanes) if blocks.c % cols == 0]
    for cols in fitting[-1:]:
        for rows in dict.fromkeys((register.rows, 2 * register.rows)):
            vectors = cols // lanes
            if rows * vectors + vectors < target.vector_registers:
                yield replace(register, rows=rows, cols=cols)


def _steps(
    problem: Conv2d, schedule: Schedule, register: Register, blocks: Blocks
) -> Iterator[Step]:
    """The steps with other chunks, tiles and register tile. A block is as good as a packed one."""
    is_direct, is_walked = not schedule.transforms, problem.kh * problem.kw == 1
    drops_a = bool(blocks.a) and is_direct and is_walked and not problem.pad
    chunk = _chunk(problem, schedule, blocks) if blocks.a and is_direct else schedule.depth
    is_streamed = chunk is None or chunk >= problem.ci
    for step in schedule.steps:
        begins = isinstance(step, Pack) or (isinstance(step, Tile) and step.dim != "co")
        if not is_streamed and (begins or isinstance(step, Stream | Instruction | Register)):
            assert chunk is not None
            yield Stream("ci", chunk)
            is_streamed = True
        if isinstance(step, Register):
            yield register
        elif isinstance(step, Tile) and step.dim == "co":
            size = max(step.size // register.cols, 1) * register.cols
            if size < problem.co:
                yield Tile("co", size)
        elif not isinstance(step, Stream) and not (drops_a and step == Pack("A")):
            yield step


def _chunk(problem: Conv2d, schedule: Schedule, blocks: Blocks) -> int:
    """The depth of a chunk: whole blocks, or one where the filter is wider than a pixel."""
    if problem.kh * problem.kw > 1 or problem.pad:
        return blocks.a
    depth = schedule.depth or problem.ci
    return max(round(depth / blocks.a), 1) * blocks.a
