"""The model of fast algorithms, and their share of the prior."""

import pytest

from tests.search.nests import nest_at
from tests.search.targets import WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import Target
from tilewise.search.model.analytical import AnalyticalModel, amounts
from tilewise.search.model.prior import prior_points
from tilewise.search.space.algorithms import ALGORITHM, WANTED, algorithm_of
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


@pytest.mark.parametrize("text", [FIRST, f"{DEEP},accuracy=strict"])
def test_where_it_does_not_pay_the_prior_is_direct(text: str) -> None:
    assert {output_of(point) for point in prior_points(model(text), 10)} == {None}


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


SMALL = "conv2d:n=1,h=7,w=7,ci=512,co=512,kh=3,kw=3,pad=1,dtype=f32,weights=constant"


def test_the_first_trial_of_small_images_has_tall_tiles_and_fetches() -> None:
    found = model(SMALL)
    first = prior_points(found, 1)[0]
    nest = nest_at(found.space, first)
    assert output_of(first) == 2 and nest.tile.rows == 8 and nest.fetches


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
