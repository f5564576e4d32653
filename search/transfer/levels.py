"""Where a search through IREE starts: the sizes that were best on near problems."""

from tilewise.search.records import Solved
from tilewise.search.space.levels.tiles import VectorTile, sides
from tilewise.search.space.parameters import Parameter, Size, default
from tilewise.search.space.points import Point, TilePoint, Value
from tilewise.search.space.space import Space
from tilewise.search.store import TrialStore
from tilewise.search.transfer.nearness import MAX_SERVING_SEARCHES, distance, near_searches

MAX_POINTS = 4  # in all
BEST = 2  # of each search


def near_levels(space: Space, store: TrialStore) -> list[Point]:
    """The best points of near problems, adapted; the best of each first."""
    serving = [s for s in near_searches(space, store) if distance(space, s) is not None]
    found: dict[str, Point] = {}
    for place in range(BEST):
        for solved in serving[:MAX_SERVING_SEARCHES]:
            if place < len(solved.points):
                point = _adapted(space, solved, place)
                found.setdefault(space.schedule(point).hash, point)
    return list(found.values())[:MAX_POINTS]


def _adapted(space: Space, solved: Solved, place: int) -> Point:
    params, _ = solved.points[place]
    return {p.name: _value(p, params.get(p.name)) for p in space.parameters}


def _value(parameter: Parameter, value: Value | None) -> Value:
    """The value here that is nearest to one there; one that was not cut stays so."""
    if value is None or value in parameter.values:
        return default(parameter) if value is None else value
    if isinstance(parameter, VectorTile) and isinstance(value, TilePoint):
        return parameter.nearest(*sides(value))
    if isinstance(parameter, Size) and isinstance(value, int):
        return parameter.nearest(value)
    return default(parameter)
