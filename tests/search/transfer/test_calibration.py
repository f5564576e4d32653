"""The model's costs, corrected by what earlier searches on the same processor have timed."""

from dataclasses import replace
from math import exp
from random import Random

import numpy as np
import pytest

from kernels.problem import parse_problem
from search.model.analytical import log_time
from search.model.prior import prior_points
from search.model.weights import FITTED, NAMES, USUAL, Costs, shipped
from search.records import Solved
from search.space.parameters import tile_shape
from search.space.space import Space
from search.store import MemoryStore
from search.transfer import calibration
from search.transfer.calibration import ERROR, LEAST, learned
from search.transfer.starting_points import warmed
from tests.search.space.test_space import SQUARE, WIDE

SHAPES = ("m=1000,n=1000,k=700", "m=100,n=2000,k=500", "m=300,n=300,k=300", "m=24,n=1500,k=900")
NEW = "matmul:m=400,n=800,k=600,dtype=f32"


def costs(overlap: float = USUAL.overlap, **factors: float) -> Costs:
    """The shipped costs, some of them so many times as high."""
    cycles = zip(NAMES, USUAL.cycles, strict=True)
    return Costs(tuple(cost * factors.get(name, 1.0) for name, cost in cycles), overlap)


def searched(
    true: Costs, noise: float = 0.02, clock: float = 1.0, trials: int = 64, seed: int = 1
) -> list[Solved]:
    """Searches on a processor whose costs are `true`: half the prior's, half random ones."""
    random, found = Random(seed), []
    for shape in SHAPES:
        space = Space(parse_problem(f"matmul:{shape},dtype=f32"), WIDE)
        points = prior_points(space, trials // 2)
        points += [space.draw(random) for _ in range(trials - len(points))]
        there = replace(space, corrected=true)
        timed = [(p, clock * exp(log_time(there, p) + random.gauss(0, noise))) for p in points]
        timed.sort(key=lambda pair: pair[1])
        known = Solved(space.problem, WIDE.canonical, tuple(timed[:32]), tuple(timed[32:]))
        found.append(known)
    return found


def rank_errors(space: Space, true: Costs) -> float:
    """How wrong the space's costs are about random points: deviation of the logarithms' errors."""
    random, there = Random(2), replace(space, corrected=true)
    points = [space.draw(random) for _ in range(100)]
    return float(np.std([log_time(space, p) - log_time(there, p) for p in points]))


@pytest.mark.parametrize(
    "true",
    [
        costs(overlap=1.0),
        costs(overlap=1.0, b_rows_from_l2=5, b_rows_from_l3=5),
        costs(packed_b=8, packed_b_far=8, fetched_b=8),
    ],
)
@pytest.mark.parametrize("clock", [1.0, 1e-3])
def test_another_processor_is_learnt_from_its_searches(true: Costs, clock: float) -> None:
    space = Space(parse_problem(NEW), WIDE)
    found = learned(space, searched(true, clock=clock))
    assert rank_errors(found, true) < 0.4 * rank_errors(space, true)
    first, shipped_first = (prior_points(s, 1)[0] for s in (found, space))
    there = replace(space, corrected=true)
    assert log_time(there, first) <= log_time(there, shipped_first) + 0.01


@pytest.mark.parametrize("width", [0.03, 0.3])
def test_costs_move_to_where_errors_and_what_was_shipped_pull_alike(width: float) -> None:
    """The loss of the trials and the prior's add up to the least there, whatever else moves."""
    space = Space(parse_problem(NEW), WIDE)
    true = costs(b_rows_from_l2=5, packed_b=3)
    timed = [calibration._timed(space, known) for known in searched(true)]
    known, still = calibration._together(timed, USUAL), np.zeros(len(NAMES))
    moved = calibration._moved(known, still, USUAL.overlap, width)

    def loss(moved: calibration.Array) -> float:
        *_, errors = calibration._system(known, moved, USUAL.overlap)
        return errors / ERROR**2 + float(moved @ moved) / width**2

    assert loss(moved) < loss(still)
    for name in range(len(NAMES)):
        for step in (-0.1, 0.1):
            aside = moved.copy()
            aside[name] += step
            assert loss(aside) > loss(moved), NAMES[name]


@pytest.mark.parametrize("noise", [0.02, 0.05])
@pytest.mark.parametrize("slightly", [USUAL, costs(packed_a=1.1, loads=0.9)])
def test_what_the_shipped_costs_explain_moves_nothing(slightly: Costs, noise: float) -> None:
    space = Space(parse_problem(NEW), WIDE)
    assert learned(space, searched(slightly, noise=noise)).costs == USUAL


@pytest.mark.parametrize("seed", range(4))
def test_errors_that_no_cost_explains_are_not_learnt(seed: int) -> None:
    space = Space(parse_problem(NEW), WIDE)
    assert learned(space, searched(USUAL, noise=0.3, seed=seed)).costs == USUAL


def test_single_columns_and_several_threads_teach_nothing() -> None:
    thin = Space(parse_problem("matmul:batch=16,m=512,n=4,k=512,dtype=f32"), WIDE)
    points = [p for p in prior_points(thin, 40) if tile_shape(p["tile"])[2]]
    timed = tuple((p, 16 * exp(log_time(thin, p) + 0.1 * i)) for i, p in enumerate(points))
    assert len(timed) >= LEAST
    assert learned(thin, [Solved(thin.problem, WIDE.canonical, timed)]) is thin
    two = replace(WIDE, threads=2)
    known = [replace(s, target=two.canonical) for s in searched(costs(1.0))]
    space = Space(SQUARE, two)
    assert learned(space, known) is space


def test_a_few_trials_or_those_of_another_target_teach_nothing() -> None:
    space = Space(SQUARE, WIDE)
    few = [replace(s, points=s.points[: LEAST - 1], slower=()) for s in searched(costs(1.0))]
    assert learned(space, few) is space
    assert learned(space, []) is space
    threads = [replace(s, target="cpu:wide,threads=2") for s in searched(costs(1.0))]
    assert learned(space, threads) is space


def test_points_that_are_none_any_more_are_passed_over() -> None:
    space, known = Space(SQUARE, WIDE), searched(costs(1.0, b_rows_from_l2=5))
    gone = tuple((p | {"tile": "40x9"}, 1e-9) for p, _ in known[0].points)
    spoilt = [replace(known[0], points=(*gone, *known[0].points)), *known[1:]]
    assert learned(space, spoilt).costs == learned(space, known).costs


def test_a_warm_search_has_both_costs_and_starting_points() -> None:
    space = Space(parse_problem("matmul:m=900,n=1000,k=700,dtype=f32"), WIDE)
    found, starts = warmed(space, MemoryStore(searched(costs(1.0, b_rows_from_l2=5))))
    assert found.costs.overlap < USUAL.overlap
    assert starts and all(space.holds(point) for point in starts)
    assert warmed(space, MemoryStore()) == (space, [])


def test_intels_processors_begin_with_cascade_lakes_costs_and_any_other_with_the_usual() -> None:
    intels = ("cascadelake", "skylake-avx512", "rocketlake", "graniterapids", "haswell")
    others = ("znver5", "znver3", "apple-m1")
    found = {cpu: shipped(replace(WIDE, cpu=cpu)) for cpu in (*intels, *others)}
    assert {found[cpu] for cpu in intels} == {FITTED["cascadelake"]}
    assert {found[cpu] for cpu in others} == {USUAL} != {FITTED["cascadelake"]}
    assert Space(SQUARE, replace(WIDE, cpu="cascadelake")).costs == FITTED["cascadelake"]


def test_what_a_store_says_is_held_to_the_costs_of_the_processor() -> None:
    known = [replace(s, target="cpu:cascadelake,threads=1") for s in searched(costs(1.0))]
    space = Space(SQUARE, replace(WIDE, cpu="cascadelake"))
    there = replace(space, corrected=costs(1.0))
    assert learned(space, known).costs != space.costs
    assert rank_errors(learned(space, known), there.costs) < rank_errors(space, there.costs)
    same = [replace(s, target="cpu:cascadelake,threads=1") for s in searched(space.costs)]
    assert learned(space, same).costs == space.costs
