"""Schedules whose products are of transformed operands: their dims, and the order of steps."""

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.iteration import IterationSpace, iteration_space
from tilewise.kernels.schedule.fewer_products import TILES
from tilewise.kernels.schedule.model import Schedule
from tilewise.kernels.schedule.refusal import refuse
from tilewise.kernels.schedule.steps.algorithms import Strassen, Winograd
from tilewise.kernels.schedule.steps.base import Step
from tilewise.kernels.schedule.steps.copies import Pack, Prefetch
from tilewise.kernels.schedule.steps.loops import Parallel, Tile
from tilewise.kernels.schedule.steps.register import Register, Unroll
from tilewise.kernels.schedule.steps.stores import Nontemporal
from tilewise.kernels.schedule.strassen import strassen_space
from tilewise.kernels.schedule.winograd import winograd_space


def scheduled_space(problem: Problem, schedule: Schedule) -> IterationSpace:
    """The dims that the steps of a schedule speak of.

    Raises:
        ScheduleError: a step changes them, and cannot do so for the problem.
    """
    for step in schedule.steps:
        if isinstance(step, Winograd | Strassen):
            return transformed_space(problem, step)
    return iteration_space(problem)


def transformed_space(problem: Problem, step: Winograd | Strassen) -> IterationSpace:
    """The dims behind a step that transforms the operands.

    Raises:
        ScheduleError: it cannot be applied to the problem.
    """
    if isinstance(step, Winograd):
        return winograd_space(problem, step.output)
    return strassen_space(problem, step.levels)


def check_order(problem: Problem, space: IterationSpace, schedule: Schedule) -> None:
    """Raise unless the steps are those of the docstring of their method, in that order."""
    col = space.col
    kind = type(next(s for s in schedule.steps if isinstance(s, Winograd | Strassen)))
    expected: list[tuple[str, type[Step], dict[str, object], bool]] = [
        (kind.name, kind, {}, True),
        ("parallel dim=t", Parallel, {"dim": TILES}, False),
        (f"parallel dim={col}", Parallel, {"dim": col}, False),
        (f"tile dim={col}", Tile, {"dim": col}, False),
        ("pack operand=B", Pack, {"operand": "B"}, True),
        ("prefetch operand=B", Prefetch, {"operand": "B"}, False),
        ("tile dim=t", Tile, {"dim": TILES}, False),
        ("pack operand=A", Pack, {"operand": "A"}, True),
        ("register outer=cols", Register, {"outer": "cols"}, True),
        ("unroll", Unroll, {}, False),
        ("nontemporal operand=C", Nontemporal, {}, False),
    ]
    for step in schedule.steps:
        if isinstance(step, Prefetch) and kind is Winograd and not problem.has_constant_weights:
            why = "only a filter that was transformed ahead is prefetched; drop the step"
            raise refuse(problem, step, why)
        if isinstance(step, Nontemporal):
            _check_nontemporal(problem, kind, step)
    left = list(schedule.steps)
    for said, wanted, values, is_needed in expected:
        if left and isinstance(left[0], wanted) and values.items() <= vars(left[0]).items():
            left.pop(0)
        elif is_needed:
            found = f"step '{left[0]}' stands there" if left else "nothing does"
            raise ScheduleError(
                f"{problem}: with {kind.name} the step {said} is expected, and {found}; "
                f"the order is {', '.join(name for name, *_ in expected)}"
            )
    if left:
        raise ScheduleError(
            f"{problem}: step '{left[0]}' has no place beside {kind.name}; "
            f"the order is {', '.join(name for name, *_ in expected)}"
        )


def _check_nontemporal(problem: Problem, kind: type[Step], step: Nontemporal) -> None:
    """Raise where transforms of the result write no whole lines of the cache."""
    if kind is Strassen:
        raise refuse(problem, step, "it has no place beside strassen; drop the step")
    if problem.has_channels_first:
        why = "in layout=nchw_fchw a pixel's channels have no line of their own; drop the step"
        raise refuse(problem, step, why)
