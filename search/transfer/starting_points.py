"""What a search begins with, from problems that were searched before: near ones' best trials.

What is near, `search.transfer.nearness` says. The trials of near problems first correct the
analytical model's costs (`search.transfer.calibration`); then the best of them, adapted, are
starting points.

Adapted is: a block's size stays as it was, so that it fills the same cache; it is snapped to
the values that the new problem has, and a dim that was not cut and is about as long stays
uncut. What has no such value at all, or is illegal there, is left out.

Which of them come first, the analytical model decides together with what it got wrong there: a
point is expected to miss the model's time by as much as it did for the other problem. So
what a new extent changes (tiles cut off, what fits a cache) counts, as the mere winner's
point does not, and so does what the model knows nothing of. Errors are taken relative to the usual
one of their search, so that a constant factor, of another clock, say, is none.
"""

from collections.abc import Iterator, Sequence
from math import log

import numpy as np

from search.model.analytical import Model
from search.records import Solved
from search.space.parameters import RegisterTile, Size, completed, default
from search.space.points import WHOLE, Point, Value
from search.space.space import Space
from search.space.tiles import tile_shape
from search.store import TrialStore
from search.transfer.calibration import calibrate
from search.transfer.nearness import NEAREST, distance, near_searches

MOST = 6  # starting points
FAST = 0.15  # a point so much slower than the best counts half in what is usual


def warmed(model: Model, store: TrialStore) -> tuple[Model, list[Point]]:
    """`model` with the weights that a store speaks for, and the points to start from."""
    searches = near_searches(model.space, store)
    model = Model(model.space, calibrate(model, searches))
    return model, starting_points(model, searches)


def starting_points(model: Model, searches: Sequence[Solved]) -> list[Point]:
    """Up to `MOST` points of the model's space that near problems' trials speak for.

    The best of each search, the more promising first, then the second of each, and so on: what
    was fast for one near problem may be slow here all together.
    """
    space = model.space
    known = [(distance(space, solved), solved) for solved in searches]
    near = sorted(
        ((far, solved) for far, solved in known if far is not None), key=lambda pair: pair[0]
    )
    by_place = [
        (place, expected, point)
        for _, solved in near[:NEAREST]
        for place, (expected, point) in enumerate(_best(model, solved))
    ]
    chosen: dict[str, Point] = {}
    for _, _, point in sorted(by_place, key=lambda entry: entry[:2]):
        chosen.setdefault(space.schedule(point).hash, point)
    return list(chosen.values())[:MOST]


def _best(model: Model, solved: Solved) -> list[tuple[float, Point]]:
    """The first `MOST` of what a search offers, legal and different, the most promising first."""
    space = model.space
    found: dict[str, tuple[float, Point]] = {}
    for expected, point in sorted(_expected(model, solved), key=lambda pair: pair[0]):
        schedule = space.schedule(point)
        if len(found) < MOST and space.why_illegal(schedule) is None:
            found.setdefault(schedule.hash, (expected, point))
    return list(found.values())


def _expected(model: Model, solved: Solved) -> Iterator[tuple[float, Point]]:
    """The points of a search, adapted, each with the logarithm of the time that it may take.

    Its scale is the model's: what the model says here, and how much slower than the model
    the point was there, compared with the usual error of that search.
    """
    space, former = model.space, Space(solved.problem, model.space.target)
    known = [(completed(former.parameters, params), time_us) for params, time_us in solved.points]
    known = [(params, time_us) for params, time_us in known if former.holds(params)]
    if not known:
        return
    there = Model(former, model.weights)
    errors = [log(time_us) - there.log_time(params) for params, time_us in known]
    fastest = min(time_us for _, time_us in known)
    weights = [1 / (1 + (time_us / fastest - 1) / FAST) for _, time_us in known]
    usual = float(np.average(errors, weights=weights))
    for (params, _), error in zip(known, errors, strict=True):
        point = adapt(space, former, params)
        if point is not None:
            yield model.log_time(point) + error - usual, point


def adapt(space: Space, former: Space, params: Point) -> Point | None:
    """The point of `space` that keeps the sizes of one of `former`; None when none is like it."""
    point: Point = {}
    for parameter in space.parameters:
        old = former.parameter(parameter.name)
        value: Value | None
        if old is None:
            value = default(parameter)
        else:
            value = params[parameter.name]
            if isinstance(parameter, Size) and isinstance(old, Size):
                value = _size(parameter, old, value)
            elif isinstance(parameter, RegisterTile):
                value = _tile(parameter, value)
            elif value not in parameter.values:
                value = default(parameter)
        if value is None:
            return None
        point[parameter.name] = value
    return point


def _size(parameter: Size, old: Size, value: Value) -> Value:
    if value == WHOLE and parameter.extent < 2 * old.extent:
        return WHOLE
    return parameter.nearest(old.size(value))


def _tile(parameter: RegisterTile, value: Value) -> Value | None:
    """The same tile, else the one nearest in shape of its kind."""
    if value in parameter.values:
        return value
    split = tile_shape(value).split > 0
    alike = [v for v in parameter.values if (tile_shape(v).split > 0) == split]
    wanted = parameter.encode_shape(tile_shape(value))

    def far(other: Value) -> float:
        return sum((a - b) ** 2 for a, b in zip(parameter.encode(other), wanted, strict=True))

    return min(alike, key=far, default=None)
