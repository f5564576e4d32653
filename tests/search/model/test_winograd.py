"""The model of Winograd transforms, and its share of the prior."""

from math import exp

import pytest

from tests.search.nests import nest_at
from tests.search.targets import WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import Target
from tilewise.search.model.amounts import AMOUNTS
from tilewise.search.model.analytical import AnalyticalModel, amounts
from tilewise.search.model.prior import prior_points
from tilewise.search.space.algorithms import ALGORITHM, algorithm_of
from tilewise.search.space.points import Point, TilePoint
from tilewise.search.space.space import Space

DEEP = "conv2d:n=1,h=28,w=28,ci=128,co=128,kh=3,kw=3,pad=1,dtype=f32"
FIRST = "conv2d:n=1,h=112,w=112,ci=3,co=32,kh=3,kw=3,pad=1,dtype=f32"


def output_of(point: Point) -> int | None:
    """Outputs of the tiles of a point; None for the direct method."""
    return algorithm_of(point).get("winograd")


def model(text: str, target: Target = WIDE) -> AnalyticalModel:
    return AnalyticalModel.shipped(Space(parse_problem(text), target))


def test_the_first_trial_filters_and_the_second_does_not() -> None:
    outputs = [output_of(point) for point in prior_points(model(DEEP), 10)]
    assert outputs[:4] == [4, None, 4, 4]
    assert outputs[5] is None and len(outputs) == 10


FIVE = "conv2d:n=1,h=28,w=28,ci=128,co=128,kh=5,kw=5,pad=2,dtype=f32"
LINES = "conv2d:n=1,h=28,w=28,ci=128,co=128,kh=1,kw=3,dtype=f32"


@pytest.mark.parametrize("text", [FIVE, LINES])
def test_other_filters_are_filtered_first_as_well(text: str) -> None:
    outputs = [output_of(point) for point in prior_points(model(text), 10)]
    assert outputs[0] is not None and outputs[1] is None


@pytest.mark.parametrize("text", [FIRST, f"{DEEP},accuracy=strict"])
def test_where_it_does_not_pay_the_prior_is_direct(text: str) -> None:
    assert {output_of(point) for point in prior_points(model(text), 10)} == {None}


def test_the_prior_of_direct_points_is_that_without_the_choice() -> None:
    strict = model(f"{DEEP},accuracy=strict")
    alone = [strict.space.schedule(point) for point in prior_points(strict, 12)]
    both = model(DEEP)
    points = [point for point in prior_points(both, 12) if output_of(point) is None]
    assert [both.space.schedule(point) for point in points] == alone[: len(points)]


def test_products_are_counted_point_by_point() -> None:
    """Four times fewer multiply-adds for tiles of 4x4, 2.25 times for 2x2, where tiles fit."""
    space = Space(parse_problem(DEEP), WIDE)
    point = {p.name: p.values[0] for p in space.parameters}
    point |= {"tile": TilePoint(7, 2), "cols": 0, "tiles": 0, "depth": 0}
    of_each = {name: amounts(space, point | {ALGORITHM: name}) for name in space.values(ALGORITHM)}
    assert all(tuple(found) == AMOUNTS for found in of_each.values())
    adds = {name: found["multiply_adds"] for name, found in of_each.items()}
    assert adds["direct"] / adds["winograd4"] == pytest.approx(4.0)
    assert adds["direct"] / adds["winograd2"] == pytest.approx(2.25)
    assert of_each["winograd4"]["packed_a"] > 0 and of_each["winograd4"]["packed_b_far"] > 0


@pytest.mark.parametrize(
    ("text", "saved"),
    [(FIVE, {2: 100 / 36, 3: 225 * (28 / 30) ** 2 / 49}), (LINES, {4: 2.0, 6: 2.25 * 26 / 30})],
)
def test_products_are_those_of_the_form(text: str, saved: dict[int, float]) -> None:
    """Less what the last tile of a line has too much."""
    space = Space(parse_problem(text), WIDE)
    point = {p.name: p.values[0] for p in space.parameters}
    point |= {"tile": TilePoint(7, 2), "cols": 0, "tiles": 0, "depth": 0}
    adds = {
        output_of({ALGORITHM: name}): amounts(space, point | {ALGORITHM: name})["multiply_adds"]
        for name in space.values(ALGORITHM)
    }
    for output, times in saved.items():
        assert adds[None] / adds[output] == pytest.approx(times, rel=0.1), output


def test_a_block_of_tiles_that_leaves_the_second_cache_costs() -> None:
    found = model("conv2d:n=1,h=112,w=112,ci=64,co=64,kh=3,kw=3,pad=1,dtype=f32")
    point = {p.name: p.values[0] for p in found.space.parameters}
    point |= {ALGORITHM: "winograd4", "tile": TilePoint(6, 4), "cols": 0}
    whole, cut = (exp(found.log_time(point | {"tiles": tiles})) for tiles in (0, 24))
    assert whole > cut


SMALL = "conv2d:n=1,h=7,w=7,ci=512,co=512,kh=3,kw=3,pad=1,dtype=f32,weights=constant"


def test_the_first_trial_of_small_images_has_tall_tiles_and_fetches() -> None:
    found = model(SMALL)
    first = prior_points(found, 1)[0]
    nest = nest_at(found.space, first)
    assert output_of(first) == 2 and nest.tile.rows == 8 and nest.fetches


CONSTANT = "conv2d:n=1,h={0},w={0},ci={1},co={1},kh=3,kw=3,pad=1,dtype=f32,weights=constant"
