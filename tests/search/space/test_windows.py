"""The space of convolutions with few channels in a group, and what the model makes of it."""

import math
import random

import pytest

from tests.search.targets import NARROW, WIDE
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Jam, Nontemporal, check_legal
from tilewise.kernels.target import Target
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space

PROBLEMS = (
    "conv2d:n=1,h=112,w=112,ci=96,co=96,kh=3,kw=3,stride=2,pad=1,groups=96,dtype=f32",
    "conv2d:n=2,h=7,w=7,ci=960,co=960,kh=3,kw=3,pad=1,groups=960,dtype=f32",
    "conv2d:n=1,h=9,w=5,ci=24,co=72,kh=5,kw=5,pad=2,groups=24,dtype=i8,bias",
    "conv2d:n=1,h=1,w=1,ci=6,co=6,kh=1,kw=1,groups=6,dtype=f64",
    "conv2d:n=2,h=14,w=48,ci=32,co=64,kh=3,kw=3,pad=1,groups=32,layout=nchw_fchw,dtype=f32",
    "conv2d:n=1,h=31,w=31,ci=16,co=16,kh=11,kw=11,pad=5,groups=16,dtype=f32",
)


@pytest.mark.parametrize("target", [WIDE, NARROW, WIDE.with_threads(4)], ids=str)
@pytest.mark.parametrize("text", PROBLEMS)
def test_every_point_is_a_schedule_that_lowers(text: str, target: Target) -> None:
    problem = parse_problem(text)
    space, draws = Space(problem, target), random.Random(0)
    for _ in range(40):
        schedule = space.schedule(space.draw(draws))
        check_legal(problem, schedule)
        assert plan(problem, schedule, target).nest.taps == problem.kh * problem.kw


@pytest.mark.parametrize("text", PROBLEMS)
def test_the_model_orders_points_and_the_prior_offers_different_ones(text: str) -> None:
    space = Space(parse_problem(text), WIDE)
    model, draws = AnalyticalModel.shipped(space), random.Random(1)
    times = [model.log_time(space.draw(draws)) for _ in range(40)]
    assert all(map(math.isfinite, times))
    offered = prior_points(model, 8)
    hashes = {space.schedule(point).hash for point in offered}
    assert len(hashes) == len(offered) > 0
    assert model.log_time(offered[0]) <= min(times) + 0.05


def test_a_tile_that_computes_in_its_registers_is_thought_faster() -> None:
    space = Space(parse_problem(PROBLEMS[0]), WIDE)
    model = AnalyticalModel.shipped(space)
    base = prior_points(model, 1)[0] | {"lines": 1, "nontemporal": False}
    assert model.log_time(base | {"tile": TilePoint(4, 1), "lines": 2}) < model.log_time(
        base | {"tile": TilePoint(1, 1)}
    )


def test_what_a_problem_has_no_use_for_is_no_choice() -> None:
    pixels, ragged, planes = (Space(parse_problem(PROBLEMS[i]), WIDE) for i in (0, 2, 4))
    assert planes.values("lines") == (1,)
    assert planes.values("nontemporal") == (False, True)  # lines of 48 are three vectors
    assert ragged.values("nontemporal") == (False,)
    draws = random.Random(2)
    drawn = [pixels.schedule(pixels.draw(draws)) for _ in range(50)]
    assert {Jam, Nontemporal} <= {type(step) for one in drawn for step in one.steps}
