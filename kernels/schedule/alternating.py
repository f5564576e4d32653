"""Whether blocks of a product can be summed apart, and visited from either end."""

from kernels.problem.base import Problem
from kernels.problem.iteration import IterationSpace
from kernels.problem.model import Conv2d
from kernels.schedule.model import Schedule
from kernels.schedule.refusal import refuse
from kernels.schedule.steps.base import Step
from kernels.schedule.steps.copies import Pack
from kernels.schedule.steps.loops import Alternate, Divide, Parallel, Tile
from kernels.schedule.steps.register import Interleave


def check_divide(problem: Problem, space: IterationSpace, schedule: Schedule, step: Divide) -> None:
    """Raise unless a sweep has all rows, and blocks of its reduction come first.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    if step.dim != space.stream:
        raise refuse(problem, step, f"divide takes the reduction {space.stream}")
    if not schedule.sweeps or schedule.register.rows != space.extent(space.row):
        raise refuse(problem, step, "only a sweep of all rows is divided; drop the step")
    if _within(problem, space, schedule).index(step):
        raise refuse(problem, step, "put it before all other loops over blocks")
    if step.size >= space.extent(space.stream):
        raise refuse(problem, step, f"the reduction is only {space.extent(space.stream)} deep")
    if step.size % (schedule.depth or 1):
        raise refuse(problem, step, f"give whole chunks, a multiple of {schedule.depth}")
    for other in schedule.steps:
        if isinstance(other, Interleave):
            raise refuse(problem, other, "parts of a divided reduction are not read in turn; drop")


def check_alternate(
    problem: Problem, space: IterationSpace, schedule: Schedule, step: Alternate
) -> None:
    """Raise unless the step is of the outermost loop over blocks, and factors are read in place.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    if isinstance(problem, Conv2d) or step.dim in space.lead:
        why = f"rows {space.row}, columns {space.col} or the divided reduction {space.stream} of a"
        raise refuse(problem, step, f"{why} matmul are visited from either end")
    loops = _within(problem, space, schedule)
    first = loops[0]
    if loops.index(step) != 1 or not isinstance(first, Tile | Divide) or first.dim != step.dim:
        kind = "divide" if step.dim == space.stream else "tile"
        raise refuse(problem, step, f"put it behind a first {kind} dim={step.dim}")
    for other in schedule.steps:
        if isinstance(other, Pack):
            raise refuse(problem, other, "blocks in turn are read in place; drop the step")


def _within(problem: Problem, space: IterationSpace, schedule: Schedule) -> list[Step]:
    """The steps within one thread and one product of a batch."""
    singles = [Tile(dim, 1) for dim in space.lead]
    return [s for s in schedule.steps if not isinstance(s, Parallel) and s not in singles]
