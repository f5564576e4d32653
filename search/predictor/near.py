"""Predictions from results of near problems on the same target.

The winner of a near problem is adapted as a search adapts it. It is expected to take longer or
shorter than there by as much as the analytical model says.
"""

from collections.abc import Iterable, Iterator
from math import exp, log
from typing import NamedTuple

from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.records import Solved
from tilewise.search.space.parameters import completed
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space
from tilewise.search.transfer.nearness import MAX_DOUBLINGS, decisive, doublings
from tilewise.search.transfer.starting_points import adapt

MOST_NEAR = 4  # winners that are adapted


class Expected(NamedTuple):
    """A legal schedule with its point and the time that it should take, in us."""

    point: Point
    schedule: Schedule
    time_us: float


class Winners:
    """Results of searches on one target, of each the fastest point."""

    def __init__(self, solved: Iterable[Solved]) -> None:
        self._alike: dict[tuple[object, ...], list[Solved]] = {}
        for one in solved:
            self._alike.setdefault(decisive(one.problem), []).append(one)

    def near(self, problem: Problem) -> list[Solved]:
        """Return those whose schedules may serve a problem, nearest first."""
        alike = self._alike.get(decisive(problem), [])
        apart = sorted(
            (far, place)
            for place, one in enumerate(alike)
            if (far := doublings(problem, one.problem)) <= MAX_DOUBLINGS
        )
        return [alike[place] for _, place in apart[:MOST_NEAR]]


def expected(model: AnalyticalModel, near: Iterable[Solved]) -> Iterator[Expected]:
    """Yield the legal schedules that near problems support, in their order."""
    space = model.space
    for solved in near:
        former = Space(solved.problem, space.target)
        (params, time_us), *_ = solved.points
        known = completed(former.parameters, params)
        point = adapt(space, former, known) if former.holds(known) else None
        schedule = None if point is None else space.schedule(point)
        if point is None or not isinstance(schedule, Schedule) or space.why_illegal(schedule):
            continue
        there = AnalyticalModel(former, model.weights).log_time(known)
        yield Expected(point, schedule, exp(log(time_us) + model.log_time(point) - there))
