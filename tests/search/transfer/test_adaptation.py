import pytest

from tests.search.targets import WIDE
from tests.search.transfer.searches import solved
from tilewise.kernels.problem import parse_problem
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space
from tilewise.search.transfer.starting_points import adapt


def adapted(text: str, **changes):
    """A point of another problem, in the space of `text`."""
    known = solved("matmul:m=512,n=512,k=2048,dtype=f32", **changes)
    (params, _), former = known.points[0], Space(known.problem, WIDE)
    return adapt(Space(parse_problem(text), WIDE), former, params)


def test_sizes_are_kept_and_snapped() -> None:
    text = "matmul:m=600,n=4000,k=300,dtype=f32"
    point = adapted(text, depth=512, cols=0, rows=64, tile=TilePoint(8, 3))
    assert point["depth"] == 0  # 300 is less than what stayed in the cache
    assert point["cols"] == 512  # it was whole, but a dim of 4000 is another matter
    assert point["rows"] == 64
    assert point["tile"] == TilePoint(8, 3)


@pytest.mark.parametrize(("extent", "cols"), [(300, 0), (1000, 0), (1023, 0), (1024, 512)])
def test_a_dim_that_was_not_cut_stays_whole_up_to_twice_as_long(extent: int, cols: int) -> None:
    assert adapted(f"matmul:m=600,n={extent},k=300,dtype=f32", cols=0)["cols"] == cols


def test_a_tile_that_does_not_fit_gives_way_to_one_like_it() -> None:
    point = adapted("matmul:m=512,n=20,k=512,dtype=f32", tile=TilePoint(8, 3))
    assert point["tile"] in [TilePoint(rows, 2) for rows in (8, 10, 12)]


ONE_ROW = "matmul:m=1,n={},k=1000,dtype=f32"


CONVOLUTION = "conv2d:n=1,h=30,w=30,ci=128,co=128,kh={},kw={},dtype=f32"


@pytest.mark.parametrize(
    ("former", "algorithm", "taps", "expected"),
    [
        ((3, 3), "winograd4", (5, 5), "winograd3"),
        ((3, 3), "winograd4", (3, 1), "winograd4"),
        ((5, 5), "winograd3", (3, 3), "winograd4"),
        ((1, 3), "winograd6", (7, 1), "winograd2"),
        ((3, 3), "direct", (5, 5), "direct"),
    ],
)
def test_another_filter_has_the_tiles_most_like_those_of_the_former(
    former: tuple[int, int], algorithm: str, taps: tuple[int, int], expected: str
) -> None:
    spaces = [Space(parse_problem(CONVOLUTION.format(*one)), WIDE) for one in (taps, former)]
    params = {p.name: p.values[0] for p in spaces[1].parameters} | {"algorithm": algorithm}
    point = adapt(*spaces, params)
    assert point is not None and point["algorithm"] == expected


def test_a_problem_that_is_not_filtered_has_no_algorithm_to_adapt() -> None:
    here = Space(parse_problem(CONVOLUTION.format(1, 1)), WIDE)
    there = Space(parse_problem(CONVOLUTION.format(3, 3)), WIDE)
    params = {p.name: p.values[0] for p in there.parameters} | {"algorithm": "winograd4"}
    point = adapt(here, there, params)
    assert point is not None and "algorithm" not in point
    back = adapt(there, here, {p.name: p.values[0] for p in here.parameters})
    assert back is not None and back["algorithm"] == "direct"
