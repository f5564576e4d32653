"""Find earlier searches that are relevant to a problem, and their distance.

A schedule may serve a problem of the same operation, element type, layout and transposes on the
same processor with the same features. The distance is that of the extents' logarithms, in doublings
(Chen et al., Learning to Optimize Tensor Programs, NeurIPS 2018, section 4). Other threads, bias,
epilogue and the like count as a fraction of a doubling. Any search for the operation on as many
threads of a processor describes that processor.
"""

from collections import Counter
from dataclasses import fields
from math import log2, sqrt

from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem import Problem
from tilewise.kernels.target.model import parse_target
from tilewise.search.records import Earlier, Solved
from tilewise.search.space.space import Space
from tilewise.search.store import TrialStore

MAX_DOUBLINGS = 2.5  # of extents, in all; a schedule from farther away says little
DETAIL_DOUBLINGS = 0.5  # what another epilogue or the like counts
DECISIVE_FIELDS = ("dtype", "b", "zero", "layout", "transpose_a", "transpose_b", "weights")
MAX_SEARCHES = 16  # that are read of a store
MAX_SERVING_SEARCHES = 4  # of them, whose schedules may serve
MAX_SEARCHES_OF_A_PROBLEM = 2  # of one and the same problem, those with the most trials


def near_searches(space: Space, store: TrialStore) -> list[Solved]:
    """Return what the nearest searches on the same processor found.

    Searches whose schedules may serve come first.
    """
    known = [
        (apart, earlier)
        for earlier in store.earlier(space.problem.op)
        if (apart := _doublings(space, earlier)) is not None
    ]
    known.sort(key=lambda one: (one[0], -one[1].trials))
    alike: Counter[str] = Counter()
    near: list[Earlier] = []
    for _, earlier in known:
        alike[earlier.problem.canonical] += 1
        if alike[earlier.problem.canonical] <= MAX_SEARCHES_OF_A_PROBLEM:
            near.append(earlier)
    may_serve = [earlier for earlier in near if distance(space, earlier) is not None]
    serving = may_serve[:MAX_SERVING_SEARCHES]
    others = [earlier for earlier in near if earlier not in serving]
    return store.solved([*serving, *others][:MAX_SEARCHES])


def distance(space: Space, other: Earlier | Solved) -> float | None:
    """Return the doublings between two problems; None if their schedules are unrelated."""
    if decisive(space.problem) != decisive(other.problem):
        return None
    apart = _doublings(space, other)
    return apart if apart is not None and apart <= MAX_DOUBLINGS else None


def decisive(problem: Problem) -> tuple[object, ...]:
    """Return what problems have in common whose schedules may serve each other."""
    named = (getattr(problem, name, None) for name in DECISIVE_FIELDS)
    return problem.op, *named, *_groups(problem)


def _groups(problem: Problem) -> tuple[int, ...]:
    """Return the decisive property of groups: their number, or the size of each."""
    nest = nest_of(problem)
    return (0, nest.extent(nest.k), nest.group) if nest.group else (problem.groups,)


def doublings(here: Problem, there: Problem) -> float:
    """Return the distance of two problems of one operation."""
    apart = 0.0
    for field in fields(here):
        mine, other = getattr(here, field.name), getattr(there, field.name)
        if _is_size(mine) and _is_size(other):
            apart += log2(mine / other) ** 2
        elif mine != other:
            apart += DETAIL_DOUBLINGS**2
    return sqrt(apart)


def _is_size(value: object) -> bool:
    """Return whether a key's value is a positive number, and no text such as `pad=0x1`."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _doublings(space: Space, other: Earlier | Solved) -> float | None:
    """Return the distance of two searches' problems; None for another processor or compiler."""
    there, own = parse_target(other.target), space.target.named
    if not there.is_of(own) or there.kind != own.kind:
        return None
    detail = DETAIL_DOUBLINGS * (there.threads != own.threads)
    return doublings(space.problem, other.problem) + detail
