"""The model's costs, corrected by what earlier searches on the same processor have timed."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from tests.cases import some
from tests.search.targets import SQUARE, WIDE
from tests.search.transfer.searches import costs, searched_with
from tilewise.kernels.problem import parse_problem
from tilewise.search.model.amounts import DEFAULT_WEIGHTS, Weights
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.records import Solved
from tilewise.search.space.space import Space
from tilewise.search.transfer.calibration import MIN_TRIALS, calibrate

NEW = "matmul:m=400,n=800,k=600,dtype=f32"


def rank_errors(model: AnalyticalModel, true: Weights) -> float:
    """How wrong the model is about random points: deviation of the logarithms' errors."""
    random, there = Random(2), AnalyticalModel(model.space, true)
    points = [model.space.draw(random) for _ in range(100)]
    return float(np.std([model.log_time(p) - there.log_time(p) for p in points]))


def corrected(model: AnalyticalModel, searches: list[Solved]) -> AnalyticalModel:
    return AnalyticalModel(model.space, calibrate(model, searches))


@pytest.mark.parametrize(
    ("true", "clock"),
    some(
        [
            (costs(overlap=1.0), 1.0),
            (costs(packed_b=8, packed_b_far=8, fetched_b=8), 1.0),
            (costs(overlap=1.0, b_rows_from_l2=5, b_rows_from_l3=5), 1e-3),
        ],
        of=2,
    ),
)
def test_another_processor_is_learnt_from_its_searches(true: Weights, clock: float) -> None:
    model = AnalyticalModel.shipped(Space(parse_problem(NEW), WIDE))
    found = corrected(model, searched_with(true, clock=clock))
    assert rank_errors(found, true) < 0.4 * rank_errors(model, true)
    first, shipped_first = (prior_points(m, 1)[0] for m in (found, model))
    there = AnalyticalModel(model.space, true)
    assert there.log_time(first) <= there.log_time(shipped_first) + 0.01


@pytest.mark.parametrize("noise", [0.02, 0.05])
@pytest.mark.parametrize("slightly", [DEFAULT_WEIGHTS, costs(packed_a=1.1, loads=0.9)])
def test_what_the_shipped_costs_explain_moves_nothing(slightly: Weights, noise: float) -> None:
    model = AnalyticalModel.shipped(Space(parse_problem(NEW), WIDE))
    assert calibrate(model, searched_with(slightly, noise=noise)) == DEFAULT_WEIGHTS


@pytest.mark.parametrize("seed", range(4))
def test_errors_that_no_cost_explains_are_not_learnt(seed: int) -> None:
    model = AnalyticalModel.shipped(Space(parse_problem(NEW), WIDE))
    assert calibrate(model, searched_with(DEFAULT_WEIGHTS, noise=0.3, seed=seed)) == DEFAULT_WEIGHTS


def test_a_few_trials_or_those_of_another_target_teach_nothing() -> None:
    model = AnalyticalModel.shipped(Space(SQUARE, WIDE))
    known = searched_with(costs(1.0))
    few = [replace(s, points=s.points[: MIN_TRIALS - 1], slower=()) for s in known]
    assert calibrate(model, few) is model.weights
    assert calibrate(model, []) is model.weights
    threads = [replace(s, target="cpu:wide,threads=2") for s in searched_with(costs(1.0))]
    assert calibrate(model, threads) is model.weights


def test_what_a_store_says_is_held_to_the_costs_of_the_processor() -> None:
    known = [replace(s, target="cpu:cascadelake,threads=1") for s in searched_with(costs(1.0))]
    model, true = (
        AnalyticalModel.shipped(Space(SQUARE, replace(WIDE, cpu="cascadelake"))),
        costs(1.0),
    )
    found = corrected(model, known)
    assert found.weights != model.weights
    assert rank_errors(found, true) < rank_errors(model, true)
    same = [replace(s, target="cpu:cascadelake,threads=1") for s in searched_with(model.weights)]
    assert calibrate(model, same) == model.weights
