"""Whether the blocks of a product can be visited from either end."""

from kernels.problem.base import Problem
from kernels.problem.iteration import IterationSpace
from kernels.problem.model import Conv2d
from kernels.schedule.model import Schedule
from kernels.schedule.refusal import refuse
from kernels.schedule.steps.copies import Pack
from kernels.schedule.steps.loops import Alternate, Parallel, Tile


def check_alternate(
    problem: Problem, space: IterationSpace, schedule: Schedule, step: Alternate
) -> None:
    """Raise unless the step is of the outermost loop over blocks, and factors are read in place.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    if isinstance(problem, Conv2d) or step.dim not in (space.row, space.col):
        why = f"rows {space.row} or columns {space.col} of a matmul are visited from either end"
        raise refuse(problem, step, why)
    kinds = [s for s in schedule.steps if not isinstance(s, Parallel)]
    if kinds.index(step) != 1 or not isinstance(kinds[0], Tile) or kinds[0].dim != step.dim:
        raise refuse(problem, step, f"put it behind a first tile dim={step.dim}")
    for other in schedule.steps:
        if isinstance(other, Pack):
            raise refuse(problem, other, "blocks in turn are read in place; drop the step")
