from math import exp

import pytest

from tests.search.targets import SQUARE, WIDE
from tests.search.transfer.searches import solved
from tilewise.kernels.problem import parse_problem
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.records import Solved
from tilewise.search.space.points import TilePoint, point_from_json
from tilewise.search.space.space import Space
from tilewise.search.transfer.nearness import MAX_SERVING_SEARCHES
from tilewise.search.transfer.starting_points import MAX_STARTING_POINTS, starting_points


def test_only_legal_points_come_each_once_and_a_few() -> None:
    tiles = ("4x6", "8x3", "9x3", "6x4", "7x3", "12x2", "5x5", "10x2")
    assert len(tiles) > MAX_STARTING_POINTS
    known = [searched("matmul:m=1024,n=1024,k=900,dtype=f32", dict.fromkeys(tiles, 1.0))]
    space = Space(SQUARE, WIDE)
    points = starting_points(AnalyticalModel.shipped(space), [*known, *known])
    assert len(points) == MAX_STARTING_POINTS
    assert len({space.schedule(p).hash for p in points}) == MAX_STARTING_POINTS
    assert all(space.holds(p) and space.why_illegal(space.schedule(p)) is None for p in points)


def test_only_the_nearest_searches_are_asked() -> None:
    near = [
        solved(f"matmul:m=1024,n=1024,k={900 + i},dtype=f32", tile=TilePoint(5, 5))
        for i in range(4)
    ]
    assert len(near) == MAX_SERVING_SEARCHES
    far = solved("matmul:m=512,n=512,k=512,dtype=f32", tile=TilePoint(8, 3))
    points = starting_points(AnalyticalModel.shipped(Space(SQUARE, WIDE)), [far, *near])
    assert {str(p["tile"]) for p in points} == {"5x5"}


def searched(text: str, factors: dict[str, float], scale: float = 1.0) -> Solved:
    """A search whose times are the model's but for a factor by tile."""
    space = Space(parse_problem(text), WIDE)
    base = prior_points(AnalyticalModel.shipped(space), 1)[0]
    points = [point_from_json(base | {"tile": tile}) for tile in factors]
    timed = [
        (p, scale * exp(AnalyticalModel.shipped(space).log_time(p)) * factors[str(p["tile"])])
        for p in points
    ]
    return Solved(space.problem, WIDE.canonical, tuple(sorted(timed, key=lambda pair: pair[1])))


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_what_the_model_got_wrong_there_is_expected_here(scale: float) -> None:
    """Whatever the clock: only how the points of one search compare is carried over."""
    factors = dict.fromkeys(("6x4", "8x3", "12x2", "7x3", "9x3"), 1.0) | {"5x5": 0.8, "9x2": 0.7}
    text = "matmul:m=1024,n=1024,k=900,dtype=f32"
    points = starting_points(
        AnalyticalModel.shipped(Space(SQUARE, WIDE)), [searched(text, factors, scale)]
    )
    assert {str(p["tile"]) for p in points[:2]} == {"5x5", "9x2"}


def test_a_slower_point_comes_first_where_the_model_sees_that_it_suits_better() -> None:
    """A winner's tile of 8 rows says little of 5 rows: the model's edges and sizes count."""
    known = searched("matmul:m=64,n=960,k=900,dtype=f32", {"8x3": 0.97, "5x5": 1.0, "6x4": 1.05})
    assert known.points[0][0]["tile"] != TilePoint(5, 5)
    few = Space(parse_problem("matmul:m=15,n=960,k=900,dtype=f32"), WIDE)
    assert starting_points(AnalyticalModel.shipped(few), [known])[0]["tile"] == TilePoint(5, 5)


def test_each_search_has_its_turn() -> None:
    """However much better one of them is thought to suit: its points may fail all together."""
    liked = dict.fromkeys(("6x4", "8x3", "12x2", "7x3", "9x3", "10x2", "9x2"), 0.5)
    usual = dict.fromkeys(("5x5", "4x6"), 1.0)
    one = searched("matmul:m=1024,n=1024,k=900,dtype=f32", liked | {"4x4": 1.0})
    other = searched("matmul:m=1024,n=1024,k=1900,dtype=f32", usual)
    points = starting_points(AnalyticalModel.shipped(Space(SQUARE, WIDE)), [one, other])
    tiles = [str(point["tile"]) for point in points]
    assert len(tiles) == MAX_STARTING_POINTS
    assert set(tiles[:2]) & set(usual) and set(tiles[2:4]) & set(usual)
    assert set(tiles[:2]) & set(liked) and set(tiles[2:]) - set(usual) <= set(liked)


def test_points_that_the_space_no_longer_has_are_left_out() -> None:
    known = solved("matmul:m=1024,n=1024,k=900,dtype=f32", tile=TilePoint(40, 9))
    assert starting_points(AnalyticalModel.shipped(Space(SQUARE, WIDE)), [known]) == []


def test_a_parameter_of_later_times_is_filled_in() -> None:
    known = solved("matmul:m=1024,n=1024,k=1024,dtype=f32", tile=TilePoint(5, 5))
    params = {k: v for k, v in known.points[0][0].items() if k != "prefetch"}
    earlier = Solved(known.problem, known.target, ((params, 1000.0),))
    (point,) = starting_points(AnalyticalModel.shipped(Space(SQUARE, WIDE)), [earlier])
    assert point["tile"] == TilePoint(5, 5) and point["prefetch"] is False
