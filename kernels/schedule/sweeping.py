"""Whether the columns of a product can be swept."""

from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.iteration import IterationSpace
from tilewise.kernels.problem.model import Conv2d
from tilewise.kernels.schedule.model import Schedule
from tilewise.kernels.schedule.refusal import refuse
from tilewise.kernels.schedule.steps.copies import Pack, Prefetch
from tilewise.kernels.schedule.steps.register import Interleave, Sweep

LARGEST_SWEEP = 64  # rows of B side by side; the code has all of them


def check_sweep(problem: Problem, space: IterationSpace, schedule: Schedule, step: Sweep) -> None:
    """Raise unless rows of B can be read side by side, for one register tile of rows after another.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    rows = space.extent(space.row)
    if isinstance(problem, Conv2d) or problem.has_transposed_b:
        raise refuse(problem, step, "only rows of a matrix B that lie along n are swept")
    if step.dim != space.col:
        raise refuse(problem, step, f"sweep takes the columns {space.col}")
    if rows > 1 and problem.has_transposed_a:
        raise refuse(problem, step, "rows of a transposed A are not contiguous")
    if schedule.register.rows > rows:
        raise refuse(problem, step, f"there are {rows} rows; give rows={rows} or fewer")
    if schedule.register.rows < rows and schedule.register.outer != "rows":
        raise refuse(
            problem, step, "columns are the innermost loop; give outer=rows, or all rows at once"
        )
    if not schedule.depth or schedule.depth > LARGEST_SWEEP:
        raise refuse(problem, step, f"stream {space.stream} by at most {LARGEST_SWEEP} before")
    for other in schedule.steps:
        if isinstance(other, Pack):
            raise refuse(problem, other, "a sweep reads both factors in place; drop the step")
        if isinstance(other, Prefetch) and other.operand != "B":
            raise refuse(problem, other, "a sweep has rows of B to prefetch")


def check_interleave(
    problem: Problem, space: IterationSpace, schedule: Schedule, step: Interleave
) -> None:
    """Raise unless each of several streams has the same number of rows in a chunk.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    if step.dim != space.stream:
        raise refuse(problem, step, f"interleave takes the reduction {space.stream}")
    if step.streams < 2 or (schedule.depth or 0) % step.streams:
        why = f"streams divide the {schedule.depth} rows of a chunk; give 2 or more that do"
        raise refuse(problem, step, why)
