"""Schedules made of choices: what a search decides, each by the step that says what it means."""

from collections.abc import Mapping
from typing import Any

from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.schedule.apply import begin
from tilewise.kernels.schedule.model import Schedule
from tilewise.kernels.steps import STEP_OF_CHOICE, Part, Phase, Place, Step
from tilewise.kernels.steps.pack import Pack
from tilewise.kernels.steps.prefetch import Prefetch


def chosen(problem: Problem, choices: Mapping[str, Any]) -> Part:
    """Return the steps that choices make (`Step.chosen`), and the part that they leave to a thread.

    The algorithm and the micro-kernel are chosen first, since blocks are multiples of their sizes.

    Args:
        problem: what is computed.
        choices: by name, in the order of the steps in the schedule.

    Raises:
        KeyError: no step is made of a choice.
        ScheduleError: the algorithm or the micro-kernel cannot be applied.
    """
    direct, first = nest_of(problem), dict[str, tuple[Step, ...]]()
    for name, value in choices.items():
        kind = STEP_OF_CHOICE[name]
        if kind.phase <= Phase.MICRO_KERNEL:
            first[name] = tuple(kind.chosen(name, value, Part(direct, direct.extents)))
    nest = begin(problem, *(step for steps in first.values() for step in steps))
    part = Part(nest, dict(nest.extents))
    for name, value in choices.items():
        if name in first:
            part.steps += first[name]
        else:
            part.steps += STEP_OF_CHOICE[name].chosen(name, value, part)
    return part


def with_panels_fetched(schedule: Schedule) -> Schedule:
    """Return a schedule that fetches panels of B ahead, and packs B if it did not.

    A sweep reads B in place by its nature, and stays as it is.
    """
    steps, pack = schedule.steps, Pack("B")
    if Prefetch("B") in steps:
        return schedule
    if pack not in steps:
        places = [step.place for step in steps]
        if Place.SWEEP in places:
            return schedule
        inner = (i for i, place in enumerate(places) if place >= Place.INSTRUCTION)
        at = next(inner, len(steps))
        steps = (*steps[:at], pack, *steps[at:])
    behind = steps.index(pack) + 1
    return Schedule((*steps[:behind], Prefetch("B"), *steps[behind:]))
