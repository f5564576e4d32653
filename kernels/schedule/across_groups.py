"""Whether a schedule can be applied where columns span the groups of a convolution.

The micro-kernel then computes whole lines, reads the image in place, and sums all of an output's
few products at once. So lines are not cut, nothing is packed, and the reduction is left alone.
"""

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.iteration import IterationSpace
from tilewise.kernels.problem.model import Conv2d
from tilewise.kernels.schedule.model import Schedule
from tilewise.kernels.schedule.refusal import refuse
from tilewise.kernels.schedule.steps.copies import Pack, Prefetch
from tilewise.kernels.schedule.steps.loops import Parallel, Stream, Tile
from tilewise.kernels.schedule.steps.register import Jam, Split, Unroll

_WITHOUT = {
    Pack: "the image is read in place",
    Stream: "a group has too few channels to stream",
    Split: "a group has too few channels to split",
    Unroll: "the filter's taps are unrolled as they are",
}


def check_across_groups(problem: Problem, space: IterationSpace, schedule: Schedule) -> None:
    """Raise unless `schedule` can be applied to a problem of few channels in a group.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    assert isinstance(problem, Conv2d)
    for step in schedule.steps:
        if type(step) in _WITHOUT:
            raise refuse(problem, step, f"{_WITHOUT[type(step)]}; drop the step")
        if isinstance(step, Tile | Parallel) and step.dim == "ow":
            raise refuse(problem, step, "a line is computed whole; drop the step")
        if isinstance(step, Jam):
            _check_jam(problem, space, step)
        if isinstance(step, Prefetch):
            _check_prefetch(problem, space, schedule, step)
    if problem.n > 1 and Tile("n", 1) not in schedule.steps:
        raise ScheduleError(f"{problem}: n is visited one at a time; add tile dim=n size=1")
    _check_register(problem, space, schedule)


def _check_jam(problem: Conv2d, space: IterationSpace, step: Jam) -> None:
    if space.row == "oh" or step.dim != "oh":
        raise refuse(problem, step, "lines outside of the rows of a register tile are jammed alone")
    if not 2 <= step.factor <= problem.oh:
        raise refuse(problem, step, f"oh is {problem.oh}; give factor=2 to {problem.oh}")


def _check_prefetch(
    problem: Conv2d, space: IterationSpace, schedule: Schedule, step: Prefetch
) -> None:
    """Pixels of few channels lie far apart; lines of a plane are streams as they are."""
    if step.operand != "A" or space.image != "A":
        raise refuse(problem, step, "only an image with its channels side by side is prefetched")


def _check_register(problem: Conv2d, space: IterationSpace, schedule: Schedule) -> None:
    """A tile of rows that exist, whose columns are whole groups."""
    register, outputs = schedule.register, problem.co // problem.groups
    if register.rows > space.extent(space.row):
        raise refuse(problem, register, f"{space.row} is only {space.extent(space.row)}")
    if space.col == "co" and register.cols % outputs:
        raise refuse(problem, register, f"cols is no multiple of a group's {outputs} channels")
