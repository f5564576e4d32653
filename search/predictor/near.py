"""Predictions from results of near problems on the same target.

The winner of a near problem is adapted as a search adapts it. It is expected to take longer or
shorter than there by as much as the analytical model says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from operator import itemgetter

from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.records import Solved
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space
from tilewise.search.transfer.nearness import MAX_DOUBLINGS, decisive, doublings
from tilewise.search.transfer.starting_points import adapt

NEAR_DOUBLINGS = 1.0  # of extents; a winner from farther away is no better than the model's choice


@dataclass(frozen=True)
class Winner:
    """The fastest point of a search on a target."""

    solved: Solved
    target: Target

    @cached_property
    def space(self) -> Space:
        """The space of its problem."""
        return Space(self.solved.problem, self.target)

    @cached_property
    def point(self) -> Point | None:
        """The point; None if the present space does not have it."""
        return next((point for point, _ in self.space.stored(self.solved.points[:1])), None)

    @cached_property
    def error(self) -> float:
        """The logarithm of its time in us over the modelled cycles."""
        assert self.point is not None
        model = AnalyticalModel.shipped(self.space)
        return log(self.solved.points[0][1]) - model.log_time(self.point)


class Winners:
    """Results of searches on one target."""

    def __init__(self, target: Target, solved: Iterable[Solved]) -> None:
        self._alike: dict[tuple[object, ...], list[Winner]] = {}
        for one in solved:
            self._alike.setdefault(decisive(one.problem), []).append(Winner(one, target))

    def near(self, problem: Problem) -> list[Winner]:
        """Return those whose schedules may serve a problem, nearest first.

        Of grouped convolutions, which the model misjudges, also those that are farther away.
        """
        most = MAX_DOUBLINGS if problem.groups > 1 else NEAR_DOUBLINGS
        alike = self._alike.get(decisive(problem), [])
        apart = [(doublings(problem, one.solved.problem), one) for one in alike]
        return [one for far, one in sorted(apart, key=itemgetter(0)) if far <= most]


def expected(
    model: AnalyticalModel, near: Sequence[Winner]
) -> tuple[Point, Schedule, float] | None:
    """Return the first legal schedule that near problems support, its point and time in us."""
    space = model.space
    for winner in near:
        point = winner.point and adapt(space, winner.space, winner.point)
        schedule = point and space.schedule(point)
        if point and isinstance(schedule, Schedule) and space.why_illegal(schedule) is None:
            return point, schedule, exp(model.log_time(point) + winner.error)
    return None
