"""The points that a search starts from: adapted best trials of near problems.

Points without an equivalent, or that are illegal here, are left out. Blocks keep their size,
snapped to the new values; a dim that was not cut and has a similar length stays whole. Points are
ordered by the model's time and its error for the other problem, relative to the usual error of that
search, which removes constant factors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log

import numpy as np

from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.levels import TimeModel
from tilewise.search.records import Solved
from tilewise.search.space.algorithms import ALGORITHM, nearest_algorithm
from tilewise.search.space.parameters import Parameter, Size, default
from tilewise.search.space.points import WHOLE, Point, TilePoint, Value
from tilewise.search.space.space import Space
from tilewise.search.store import TrialStore
from tilewise.search.transfer.calibration import calibrate
from tilewise.search.transfer.nearness import MAX_SERVING_SEARCHES, distance, near_searches

MAX_STARTING_POINTS = 6
HALF_WEIGHT_SLOWDOWN = 0.15  # a point slower than the best by this share counts half


def starting_points(model: TimeModel, searches: Sequence[Solved]) -> list[Point]:
    """Return up to `MAX_STARTING_POINTS` points that near problems support.

    The best of each search come first, then the second of each, and so on.
    """
    space = model.space
    near = [(far, one) for one in searches if (far := distance(space, one)) is not None]
    near.sort(key=lambda pair: pair[0])
    by_place = [
        (place, expected, point)
        for _, solved in near[:MAX_SERVING_SEARCHES]
        for place, (expected, point) in enumerate(_best(model, solved))
    ]
    chosen: dict[str, Point] = {}
    for _, _, point in sorted(by_place, key=lambda entry: entry[:2]):
        chosen.setdefault(space.schedule(point).hash, point)
    return list(chosen.values())[:MAX_STARTING_POINTS]


def _best(model: TimeModel, solved: Solved) -> list[tuple[float, Point]]:
    """Return the most promising legal and different points of a search, best first."""
    space, found = model.space, dict[str, tuple[float, Point]]()
    for expected, point in sorted(_expected(model, solved), key=lambda pair: pair[0]):
        schedule = space.schedule(point)
        if len(found) < MAX_STARTING_POINTS and space.why_illegal(schedule) is None:
            found.setdefault(schedule.hash, (expected, point))
    return list(found.values())


def _expected(model: TimeModel, solved: Solved) -> Iterator[tuple[float, Point]]:
    """Yield the adapted points of a search with the logarithm of their expected time.

    That is the model's time here, plus its error there beyond the mean error of that search, which
    is weighted towards fast points.
    """
    former = Space(solved.problem, model.space.target)
    known = former.stored(solved.points)
    if not known:
        return
    there = replace(model, space=former)
    errors = [log(time_us) - there.log_time(params) for params, time_us in known]
    fastest = min(time_us for _, time_us in known)
    weights = [1 / (1 + (time_us / fastest - 1) / HALF_WEIGHT_SLOWDOWN) for _, time_us in known]
    usual = float(np.average(errors, weights=weights))
    for (params, _), error in zip(known, errors, strict=True):
        point = adapt(model.space, former, params)
        if point is not None:
            yield model.log_time(point) + error - usual, point


def adapt(space: Space, former: Space, params: Point) -> Point | None:
    """Return the point of `space` with the sizes of one of `former`; None if there is none."""
    point: Point = {}
    for parameter in space.parameters:
        old = former.parameter(parameter.name)
        value = default(parameter) if old is None else _value(parameter, old, params[old.name])
        if value is None:
            return None
        point[parameter.name] = value
    return point


def _value(parameter: Parameter, old: Parameter, value: Value) -> Value | None:
    """Return the equivalent of a former parameter's value."""
    if isinstance(parameter, Size) and isinstance(old, Size):
        is_whole = value == WHOLE and parameter.extent < 2 * old.extent
        return WHOLE if is_whole else parameter.nearest(old.size(value))
    if isinstance(value, TilePoint):
        return _tile(parameter, value)
    if parameter.name == ALGORITHM:
        return nearest_algorithm(parameter.values, value)
    return value if value in parameter.values else default(parameter)


def _tile(parameter: Parameter, tile: TilePoint) -> Value | None:
    """Return the same tile, else the nearest of its kind."""
    if tile in parameter.values:
        return tile
    tiles = (other for other in parameter.values if isinstance(other, TilePoint))
    alike = [other for other in tiles if other.kind == tile.kind]
    return min(alike, key=lambda other: parameter.distance(other, tile), default=None)


def warmed(model: AnalyticalModel, store: TrialStore) -> tuple[AnalyticalModel, list[Point]]:
    """Return the model with calibrated costs, and the points to start from."""
    searches = near_searches(model.space, store)
    corrected = AnalyticalModel(model.space, calibrate(model, searches))
    return corrected, starting_points(corrected, searches)
