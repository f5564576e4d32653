"""Starting points from problems that were searched before: near ones' best trials, adapted.

Near is: the same operation, element type, layout and transposes, on the same processor (its
name stands for its instruction set and caches); then the distance of the extents'
logarithms, in doublings, as AutoTVM and Ansor's users find schedules of one shape to serve
for others (Chen et al., Learning to Optimize Tensor Programs, NeurIPS 2018, section 4: transfer
between workloads). Another number of threads, bias, epilogue and the like count as a
fraction of a doubling. The problem itself counts as the nearest of all, where it has been
searched before.

Adapted is: a block's size stays as it was, so that it fills the same cache; it is snapped to
the values that the new problem has, and a dim that was not cut and is about as long stays
uncut. What has no such value at all, or is illegal there, is left out.

Which of them come first, the analytical model decides together with what it got wrong there: a
point is expected to miss the model's time by as much as it did for the other problem. So
what a new extent changes (tiles cut off, what fits a cache) counts, as the mere winner's
point does not, and so does what the model knows nothing of. Errors are taken relative to the usual
one of their search, so that a constant factor, of another clock, say, is none.
"""

from collections.abc import Iterator
from dataclasses import fields
from math import log, log2, sqrt

import numpy as np

from kernels.target.model import parse_target
from search.model import log_time
from search.parameters import WHOLE, Parameter, Point, RegisterTile, Size, Value, tile_shape
from search.records import Solved
from search.space import Space
from search.store import TrialStore

FARTHEST = 2.5  # doublings of extents, in all, from where a schedule says little
NEAREST = 4  # earlier searches that are asked
MOST = 2  # starting points
FAST = 0.15  # a point so much slower than the best counts half in what is usual
DETAIL = 0.5  # what another epilogue or the like counts, in doublings
DECISIVE = ("dtype", "layout", "transpose_a", "transpose_b", "weights", "groups")


def starting_points(space: Space, store: TrialStore) -> list[Point]:
    """Up to `MOST` points of `space` that near problems' trials speak for, best first."""
    known = [(distance(space, solved), solved) for solved in store.solved(space.problem.op)]
    near = sorted(
        ((far, solved) for far, solved in known if far is not None), key=lambda pair: pair[0]
    )
    chosen: dict[str, tuple[float, Point]] = {}
    for _, solved in near[:NEAREST]:
        for expected, point in _expected(space, solved):
            schedule = space.schedule(point)
            other = chosen.get(schedule.hash)
            if space.why_illegal(schedule) is None and (other is None or expected < other[0]):
                chosen[schedule.hash] = expected, point
    best = sorted(chosen.values(), key=lambda pair: pair[0])
    return [point for _, point in best[:MOST]]


def _expected(space: Space, solved: Solved) -> Iterator[tuple[float, Point]]:
    """The points of a search, adapted, each with the logarithm of the time that it may take.

    Its scale is the model's: what the model says here, and how much slower than the model
    the point was there, compared with the usual error of that search.
    """
    former = Space(solved.problem, space.target)
    known = [(_completed(former, params), time_us) for params, time_us in solved.points]
    known = [(params, time_us) for params, time_us in known if former.holds(params)]
    if not known:
        return
    errors = [log(time_us) - log_time(former, params) for params, time_us in known]
    fastest = min(time_us for _, time_us in known)
    weights = [1 / (1 + (time_us / fastest - 1) / FAST) for _, time_us in known]
    usual = float(np.average(errors, weights=weights))
    for (params, _), error in zip(known, errors, strict=True):
        point = adapt(space, former, params)
        if point is not None:
            yield log_time(space, point) + error - usual, point


def distance(space: Space, solved: Solved) -> float | None:
    """Doublings between two problems; None when one says nothing about the other."""
    here, there = space.problem, solved.problem
    processor, threads = parse_target(solved.target)
    same = all(getattr(here, n, None) == getattr(there, n, None) for n in DECISIVE)
    if not same or processor != space.target.cpu:
        return None
    apart = 0.0
    for field in fields(here):
        mine, other = getattr(here, field.name), getattr(there, field.name)
        if isinstance(mine, int) and not isinstance(mine, bool) and min(mine, other) > 0:
            apart += log2(mine / other) ** 2
        elif mine != other:
            apart += DETAIL**2
    apart = sqrt(apart) + DETAIL * (threads != space.target.threads)
    return apart if apart <= FARTHEST else None


def _completed(space: Space, params: Point) -> Point:
    """A point that was stored, in the parameters that its problem has now."""
    return {p.name: params.get(p.name, _default(p)) for p in space.parameters}


def adapt(space: Space, former: Space, params: Point) -> Point | None:
    """The point of `space` that keeps the sizes of one of `former`; None when none is like it."""
    point: Point = {}
    for parameter in space.parameters:
        old = former.parameter(parameter.name)
        value: Value | None
        if old is None:
            value = _default(parameter)
        else:
            value = params[parameter.name]
            if isinstance(parameter, Size) and isinstance(old, Size):
                value = _size(parameter, old, value)
            elif isinstance(parameter, RegisterTile):
                value = _tile(parameter, value)
            elif value not in parameter.values:
                value = _default(parameter)
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
    split = tile_shape(value)[2] > 0
    alike = [v for v in parameter.values if (tile_shape(v)[2] > 0) == split]
    wanted = parameter.encode_shape(*tile_shape(value))

    def far(other: Value) -> float:
        return sum((a - b) ** 2 for a, b in zip(parameter.encode(other), wanted, strict=True))

    return min(alike, key=far, default=None)


def _default(parameter: Parameter) -> Value:
    """What a point says of a parameter that the former problem did not have."""
    return parameter.values[-1] if isinstance(parameter, Size) else parameter.values[0]
