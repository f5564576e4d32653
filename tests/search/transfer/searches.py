"""Earlier searches of which a model says what their trials took."""

from math import exp
from random import Random

from tests.search.targets import WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.search.model.amounts import AMOUNTS, DEFAULT_WEIGHTS, Weights
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.records import Solved
from tilewise.search.space.space import Space

HERE = WIDE.canonical


def solved(text: str, target: str = HERE, **changes) -> Solved:
    problem = parse_problem(text)
    point = prior_points(AnalyticalModel.shipped(Space(problem, WIDE)), 1)[0]
    return Solved(problem, target, (((point | changes), 1000.0),))


SHAPES = ("m=1000,n=1000,k=700", "m=100,n=2000,k=500", "m=300,n=300,k=300", "m=24,n=1500,k=900")


def costs(overlap: float = DEFAULT_WEIGHTS.overlap, **factors: float) -> Weights:
    """The shipped costs, some of them so many times as high."""
    cycles = zip(AMOUNTS, DEFAULT_WEIGHTS.cycles, strict=True)
    return Weights(tuple(cost * factors.get(name, 1.0) for name, cost in cycles), overlap)


def searched_with(
    true: Weights, noise: float = 0.02, clock: float = 1.0, trials: int = 64, seed: int = 1
) -> list[Solved]:
    """Searches on a processor whose costs are `true`: half the prior's, half random ones."""
    random, found = Random(seed), []
    for shape in SHAPES:
        space = Space(parse_problem(f"matmul:{shape},dtype=f32"), WIDE)
        points = prior_points(AnalyticalModel.shipped(space), trials // 2)
        points += [space.draw(random) for _ in range(trials - len(points))]
        there = AnalyticalModel(space, true)
        timed = [(p, clock * exp(there.log_time(p) + random.gauss(0, noise))) for p in points]
        timed.sort(key=lambda pair: pair[1])
        known = Solved(space.problem, WIDE.canonical, tuple(timed[:32]), tuple(timed[32:]))
        found.append(known)
    return found
