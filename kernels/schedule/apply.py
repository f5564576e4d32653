"""From a schedule to the loop nest that it makes of a problem; every consumer begins here."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.nest import LoopKind, Nest, Role, nest_of
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.schedule.model import Schedule
from tilewise.kernels.steps import Phase, Place, Step
from tilewise.kernels.steps.algorithm import check_place
from tilewise.kernels.steps.sweep import MOST_ROWS_OF_B


@lru_cache(maxsize=1024)
def loop_nest(problem: Problem, schedule: Schedule) -> Nest:
    """Return the loop nest of a schedule.

    Raises:
        ScheduleError: a step cannot be applied; names the step, the problem and the way out.
    """
    _check_order(nest_of(problem), schedule.steps)
    steps = sorted(schedule.steps, key=lambda step: step.phase)
    first = tuple(step for step in steps if step.phase <= Phase.MICRO_KERNEL)
    nest = _applied(begin(problem, *first), steps[len(first) :])
    _check_complete(nest)
    return nest


@lru_cache(maxsize=1024)
def begin(problem: Problem, *steps: Step) -> Nest:
    """Return the nest of an algorithm and a register tile: what blocks are multiples of.

    A search asks for thousands of schedules that share these steps. Others are ignored.

    Raises:
        ScheduleError: a step cannot be applied.
    """
    first = [step for step in steps if step.phase <= Phase.MICRO_KERNEL]
    return _applied(nest_of(problem), sorted(first, key=lambda step: step.phase))


def check_legal(problem: Problem, schedule: Schedule) -> None:
    """Raise unless `schedule` can be applied to `problem`.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    loop_nest(problem, schedule)


def _applied(nest: Nest, steps: Iterable[Step]) -> Nest:
    for step in steps:
        check_place(step, nest)
        step.check(nest)
        nest = step.apply(nest)
    return nest


def _check_order(nest: Nest, steps: tuple[Step, ...]) -> None:
    """Raise unless steps are written in the usual order; the nest does not depend on it."""
    if sum(step.place is Place.REGISTER for step in steps) != 1:
        raise ScheduleError(f"{nest.problem}: a schedule has exactly one register step")
    placed = [step for step in steps if step.place is not Place.ANYWHERE]
    for before, step in pairwise(placed):
        if step.place < before.place or step.place == before.place is not Place.LOOPS:
            usual = "an algorithm, loops and packs, instruction, register, jam, split, sweep, "
            usual += "interleave, unroll, nontemporal"
            raise step.refused(nest, f"steps are written once, in the order {usual}")


def _check_complete(nest: Nest) -> None:
    """Raise where a nest lacks a loop or a stage without which it cannot run."""
    problem, blocks = nest.problem, {x.dim for x in nest.loops_of(LoopKind.TILE) if x.step == 1}
    alone = nest.named(Role.LEAD)
    if nest.group and nest.dim("n").extent > 1:
        alone = (*alone, "n")
    for dim in alone:
        if dim not in blocks:
            why = f"{dim} is visited one at a time; start with tile dim={dim} size=1"
            raise ScheduleError(f"{problem}: {why}")
    if nest.is_skinny and not nest.k_block:
        why = f"a skinny GEMM streams {nest.k} by at most {MOST_ROWS_OF_B}; add stream dim={nest.k}"
        raise ScheduleError(f"{problem}: {why}")
    if nest.group:
        return
    for role in "AB":
        operand = nest.operand(role)
        if nest.stage(role):
            continue
        if nest.algorithm:
            why = f"with {nest.algorithm.name} both operands are packed; add pack operand={role}"
            raise ScheduleError(f"{problem}: {why}")
        if operand.is_gathered:
            why = f"patches of the image are packed; add pack operand={role}"
            raise ScheduleError(f"{problem}: {why}")
        if operand.is_padded(nest.extents):
            why = f"padding needs the image packed; add the step pack operand={role}"
            raise ScheduleError(f"{problem}: {why}")
