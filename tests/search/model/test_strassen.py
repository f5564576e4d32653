"""The model of Strassen's method, and its share of the prior."""

import pytest

from tests.search.targets import WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.search.model.analytical import AnalyticalModel, amounts
from tilewise.search.model.prior import prior_points
from tilewise.search.space.algorithms import ALGORITHM, WANTED, algorithm_of
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space

LARGE = "matmul:m=512,n=4096,k=4096,dtype=f32,weights=constant"


def test_large_products_begin_with_it_and_the_direct_method_is_second() -> None:
    model = AnalyticalModel.shipped(Space(parse_problem(LARGE), WIDE))
    found = [[*algorithm_of(point)] for point in prior_points(model, 6)]
    assert found[:2] == [["strassen"], []]
    assert all(one in (["strassen"], []) for one in found)


def test_products_are_counted_point_by_point() -> None:
    space = Space(parse_problem(LARGE), WIDE)
    point = {p.name: p.values[0] for p in space.parameters}
    point |= {"tile": TilePoint(8, 2), "cols": 0, WANTED: 0, "depth": 0, "prefetch": True}
    found = {name: amounts(space, point | {ALGORITHM: name}) for name in space.values(ALGORITHM)}
    adds = {name: amount["multiply_adds"] for name, amount in found.items()}
    assert adds["direct"] / adds["strassen1"] == pytest.approx(8 / 7)
    assert adds["direct"] / adds["strassen2"] == pytest.approx(64 / 49)
    assert found["strassen2"]["packed_a"] > found["strassen1"]["packed_a"] > 0


def test_panels_that_are_not_fetched_ahead_cost() -> None:
    model = AnalyticalModel.shipped(Space(parse_problem(LARGE), WIDE))
    point = {p.name: p.values[0] for p in model.space.parameters}
    point |= {ALGORITHM: "strassen1", "tile": TilePoint(8, 2), "cols": 0, WANTED: 0}
    times = [model.log_time(point | {"prefetch": fetched}) for fetched in (False, True)]
    assert times[0] > times[1]
