"""Points of a space in Optuna's words: each parameter is the index of a value in its order.

Indices let every sampler see order where there is one; lists of sizes are no range that an
integer distribution could say, and categories have no order.
"""

from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, IntDistribution
from optuna.trial import Trial

from tilewise.search.space.points import Point
from tilewise.search.space.space import Space


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The search space of a study over `space`: one range of indices for each parameter."""
    return {p.name: IntDistribution(0, len(p.values) - 1) for p in space.parameters}


def params_of(space: Space, point: Point) -> dict[str, int]:
    """A point as the parameters of an Optuna trial."""
    return {p.name: p.values.index(point[p.name]) for p in space.parameters}


def point_of(space: Space, params: Mapping[str, Any]) -> Point:
    """The point that the parameters of an Optuna trial mean."""
    return {p.name: p.values[int(params[p.name])] for p in space.parameters}


def suggest_point(trial: Trial, space: Space) -> Point:
    """The point that a study proposes, for an objective of one's own.

        study.optimize(lambda trial: time_us(space.schedule(suggest_point(trial, space))))

    Args:
        trial: as `study.optimize` and `study.ask` give it.
        space: what is searched.
    """
    chosen = {p.name: trial.suggest_int(p.name, 0, len(p.values) - 1) for p in space.parameters}
    return point_of(space, chosen)
