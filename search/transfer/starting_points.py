"""The points that a search starts from: the best trials of near problems, adapted.

`tilewise.search.transfer.nearness` says which problems are near,
`tilewise.search.transfer.adaptation` adapts their points. A point without a like here, or whose
schedule is illegal here, is left out.

The analytical model orders the points, together with what it got wrong: a point is expected to
miss the model's time by as much as it did for the other problem. The order then counts what a new
extent changes (tiles cut off, what fits a cache), and what the model knows nothing of. Errors are
relative to the usual one of their search, which takes out a constant factor such as another clock.
"""

from collections.abc import Iterator, Sequence
from math import log

import numpy as np

from tilewise.search.model.analytical import Model
from tilewise.search.records import Solved
from tilewise.search.space.parameters import completed
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space
from tilewise.search.transfer.adaptation import adapt
from tilewise.search.transfer.nearness import MAX_SERVING_SEARCHES, distance

MAX_STARTING_POINTS = 6
HALF_WEIGHT_SLOWDOWN = 0.15  # a point slower than the best by this share counts half


def starting_points(model: Model, searches: Sequence[Solved]) -> list[Point]:
    """Up to `MAX_STARTING_POINTS` points of the model's space that near problems speak for.

    The best point of each search comes first, the more promising ones ahead; then the second of
    each, and so on. What was fast for one near problem may be slow here all together.
    """
    space = model.space
    known = [(distance(space, solved), solved) for solved in searches]
    near = sorted(
        ((far, solved) for far, solved in known if far is not None), key=lambda pair: pair[0]
    )
    by_place = [
        (place, expected, point)
        for _, solved in near[:MAX_SERVING_SEARCHES]
        for place, (expected, point) in enumerate(_best(model, solved))
    ]
    chosen: dict[str, Point] = {}
    for _, _, point in sorted(by_place, key=lambda entry: entry[:2]):
        chosen.setdefault(space.schedule(point).hash, point)
    return list(chosen.values())[:MAX_STARTING_POINTS]


def _best(model: Model, solved: Solved) -> list[tuple[float, Point]]:
    """The most promising points that a search offers, legal and different, the best first."""
    space, found = model.space, dict[str, tuple[float, Point]]()
    for expected, point in sorted(_expected(model, solved), key=lambda pair: pair[0]):
        schedule = space.schedule(point)
        if len(found) < MAX_STARTING_POINTS and space.why_illegal(schedule) is None:
            found.setdefault(schedule.hash, (expected, point))
    return list(found.values())


def _expected(model: Model, solved: Solved) -> Iterator[tuple[float, Point]]:
    """The points of a search, adapted, each with the logarithm of the time that it may take.

    The time is on the model's scale: what the model says here, and how much slower than the model
    the point was there, compared with the usual error of that search.
    """
    former = Space(solved.problem, model.space.target)
    known = [(completed(former.parameters, params), time_us) for params, time_us in solved.points]
    known = [(params, time_us) for params, time_us in known if former.holds(params)]
    if not known:
        return
    there = Model(former, model.weights)
    errors = [log(time_us) - there.log_time(params) for params, time_us in known]
    usual = _usual_error(errors, [time_us for _, time_us in known])
    for (params, _), error in zip(known, errors, strict=True):
        point = adapt(model.space, former, params)
        if point is not None:
            yield model.log_time(point) + error - usual, point


def _usual_error(errors: Sequence[float], times_us: Sequence[float]) -> float:
    """The mean of a search's errors; fast points weigh more."""
    fastest = min(times_us)
    weights = [1 / (1 + (time_us / fastest - 1) / HALF_WEIGHT_SLOWDOWN) for time_us in times_us]
    return float(np.average(errors, weights=weights))
