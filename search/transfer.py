"""Starting points from problems that were searched before: near ones, adapted.

Near is: the same operation, element type, layout and transposes, on the same processor (its
name stands for its instruction set and caches); then the distance of the extents'
logarithms, in doublings, as AutoTVM and Ansor's users find schedules of one shape to serve
for others (Chen et al., Learning to Optimize Tensor Programs, NeurIPS 2018, section 4: transfer
between workloads). Another number of threads, bias, epilogue and the like count as a
fraction of a doubling.

Adapted is: a block's size stays as it was, so that it fills the same cache; it is snapped to
the values that the new problem has, and a dim that was not cut and is about as long stays
uncut. What has no such value at all, or is illegal there, is left out. The problem itself
counts as the nearest of all, where an earlier toolchain has searched it.
"""

from dataclasses import fields
from math import log2, sqrt

from kernels.target.model import parse_target
from search.parameters import WHOLE, Parameter, Point, RegisterTile, Size, Value, tile_shape
from search.records import Solved
from search.space import Space
from search.store import TrialStore

FARTHEST = 3.0  # doublings of extents, in all, from where a schedule says little
MOST = 4  # starting points
DETAIL = 0.5  # what another epilogue or the like counts, in doublings
DECISIVE = ("dtype", "layout", "transpose_a", "transpose_b", "weights", "groups")


def starting_points(space: Space, store: TrialStore) -> list[Point]:
    """Points of `space` that did well on near problems, nearest first, each schedule once."""
    known = [
        (far, solved)
        for solved in store.solved(space.problem.op)
        if (far := distance(space, solved)) is not None
    ]
    chosen: dict[str, Point] = {}
    for _, solved in sorted(known, key=lambda pair: pair[0]):
        point = adapt(space, solved)
        if point is None:
            continue
        schedule = space.schedule(point)
        if space.why_illegal(schedule) is None:
            chosen.setdefault(schedule.hash, point)
        if len(chosen) == MOST:
            break
    return list(chosen.values())


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


def adapt(space: Space, solved: Solved) -> Point | None:
    """The point of `space` that keeps a solved one's sizes; None when it has none like it."""
    former = Space(solved.problem, space.target)
    point: Point = {}
    for parameter in space.parameters:
        old = former.parameter(parameter.name)
        value = solved.params.get(parameter.name)
        if old is None or value not in old.values:
            value = _default(parameter)
        elif isinstance(parameter, Size) and isinstance(old, Size):
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
