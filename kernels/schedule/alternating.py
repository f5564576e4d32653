"""Whether blocks of a product can be summed apart, and visited from either end."""

from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.iteration import IterationSpace
from tilewise.kernels.problem.model import Conv2d
from tilewise.kernels.schedule.model import Schedule
from tilewise.kernels.schedule.refusal import refuse
from tilewise.kernels.schedule.steps.base import Step
from tilewise.kernels.schedule.steps.copies import Pack, Prefetch
from tilewise.kernels.schedule.steps.loops import Alternate, Divide, Parallel, Tile
from tilewise.kernels.schedule.steps.register import Interleave


def check_divide(problem: Problem, space: IterationSpace, schedule: Schedule, step: Divide) -> None:
    """Raise unless a sweep has all rows, and blocks of its reduction come first.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    if step.dim != space.stream:
        raise refuse(problem, step, f"divide takes the reduction {space.stream}")
    if not schedule.sweeps or schedule.register.rows != space.extent(space.row):
        raise refuse(problem, step, "only a sweep of all rows is divided; drop the step")
    before, singles = schedule.steps[: schedule.steps.index(step)], _singles(space)
    if not all(isinstance(other, Parallel) or other in singles for other in before):
        raise refuse(problem, step, "put it before all other loops over blocks")
    if step.size >= space.extent(space.stream):
        raise refuse(problem, step, f"the reduction is only {space.extent(space.stream)} deep")
    if step.size % (schedule.depth or 1):
        raise refuse(problem, step, f"give whole chunks, a multiple of {schedule.depth}")
    for other in schedule.steps[len(before) + 1 :]:
        if isinstance(other, Divide):
            raise refuse(problem, other, "the reduction is divided once; drop the step")
        if other in singles:
            raise refuse(problem, other, f"put it before divide dim={step.dim}")
        if isinstance(other, Tile):
            why = "each part of a divided reduction has all rows and columns; drop the step"
            raise refuse(problem, other, why)
        if isinstance(other, Interleave):
            why = "parts of a divided reduction are not read in turn; drop the step"
            raise refuse(problem, other, why)


def check_alternate(
    problem: Problem, space: IterationSpace, schedule: Schedule, step: Alternate
) -> None:
    """Raise unless the step is of the outermost loop over blocks, and factors are read in place.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    if isinstance(problem, Conv2d):
        raise refuse(problem, step, "only blocks of a matmul begin at either end; drop the step")
    if step.dim not in (space.row, space.col, space.stream):
        why = f"give rows {space.row}, columns {space.col} or the divided reduction {space.stream}"
        raise refuse(problem, step, why)
    loops = _within(space, schedule)
    first = loops[0]
    if schedule.steps.count(step) > 1:
        raise refuse(problem, step, "blocks are visited from either end once; drop one step")
    if loops.index(step) != 1 or not isinstance(first, Tile | Divide) or first.dim != step.dim:
        kind = "divide" if step.dim == space.stream else "tile"
        raise refuse(problem, step, f"put it behind a first {kind} dim={step.dim}")
    for other in schedule.steps:
        if isinstance(other, Pack):
            raise refuse(problem, other, "blocks in turn are read in place; drop the step")
        if isinstance(other, Prefetch) and not schedule.sweeps:
            raise refuse(problem, other, "the next block may lie before; drop the step")


def _within(space: IterationSpace, schedule: Schedule) -> list[Step]:
    """The steps within one thread and one product of a batch."""
    singles = _singles(space)
    return [s for s in schedule.steps if not isinstance(s, Parallel) and s not in singles]


def _singles(space: IterationSpace) -> list[Tile]:
    """The steps that visit the products of a batch one at a time."""
    return [Tile(dim, 1) for dim in space.lead]
