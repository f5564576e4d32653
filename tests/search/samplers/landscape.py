"""A made-up landscape of times, and studies over it."""

from itertools import islice
from random import Random

import optuna

from tilewise.search.engine.study import rebuilt
from tilewise.search.records import TrialRecord
from tilewise.search.samplers.base import distributions, point_of
from tilewise.search.space.points import Point, TilePoint
from tilewise.search.space.space import Space
from tilewise.search.timing.samples import summarise


def timed(space: Space, number: int, point: Point, seconds: float) -> TrialRecord:
    speed = summarise([seconds] * 6, space.problem.flops)
    return TrialRecord(number, space.schedule(point), point, "timed", "test", measurement=speed)


def seconds(space: Space, point: Point) -> float:
    """A smooth landscape whose best is far from where the prior begins."""
    goal = {"tile": TilePoint(3, 6), "unroll": 1, "depth": 96, "cols": 1024, "rows": 16,
            "pack_a": True}  # fmt: skip
    apart = 0.0
    for p in space.parameters:
        best = p.encode(goal.get(p.name, p.values[0]))
        apart += sum((a - b) ** 2 for a, b in zip(p.encode(point[p.name]), best, strict=True))
    return 1e-3 * (1 + apart)


def beside(space: Space, seed: int) -> list[Point]:
    """A point drawn at random, and some of its neighbours."""
    middle = space.draw(Random(seed))
    return [middle, *islice(space.neighbours(middle), 15)]


def study_of(space: Space, points: list[Point], sampler: optuna.samplers.BaseSampler):
    """A study in which `points` took what the landscape says."""
    told = [timed(space, i, point, seconds(space, point)) for i, point in enumerate(points)]
    return rebuilt(space, told, sampler)


def ask(study: optuna.Study, space: Space) -> tuple[optuna.Trial, Point]:
    trial = study.ask(distributions(space))
    return trial, point_of(space, trial.params)
