from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.strategies import problems
from tests.search.nests import nest_at
from tests.search.targets import NARROW, WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target.features import implied
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.initial_candidates import matrix_points
from tilewise.search.model.prior import prior_points
from tilewise.search.space.points import Point, TilePoint
from tilewise.search.space.space import Space


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW]))
def test_the_prior_proposes_different_points_of_the_space(problem, target) -> None:
    space = Space(problem, target)
    points = prior_points(AnalyticalModel.shipped(space), 16)
    assert points
    hashes = [space.schedule(p).hash for p in points]
    assert len(set(hashes)) == len(hashes)
    for point in points:
        assert all(point[p.name] in p.values for p in space.parameters)


class LikesOneValue:
    """A model of a space in which one value of a parameter is all that counts."""

    def __init__(self, space: Space, name: str, value: object) -> None:
        self.space, self.name, self.value = space, name, value

    def log_time(self, point: Point) -> float:
        return float(point[self.name] != self.value)


@pytest.mark.parametrize("name", ["outer", "unroll", "pack_a", "depth", "cols", "rows"])
def test_the_descent_moves_each_parameter(name: str) -> None:
    space = Space(parse_problem("matmul:m=512,n=512,k=512,dtype=f32"), WIDE)
    for value in space.values(name):
        first = prior_points(LikesOneValue(space, name, value), 1)[0]
        assert first[name] == value


@pytest.mark.parametrize("dtype", ["bf16", "i8", "f32"])
def test_panels_packed_ahead_are_streamed_beside_all_rows_first(dtype: str) -> None:
    space = Space(parse_problem(f"matmul:m=16,n=4096,k=4096,dtype={dtype},weights=constant"), WIDE)
    model = AnalyticalModel.shipped(space)
    first = prior_points(model, 1)[0]
    assert first["tile"] == TilePoint(16, 1) and nest_at(space, first).fetches
    without = first | {"prefetch": False}
    assert model.log_time(first) < model.log_time(without)
    assert model.log_time(without | {"tile": TilePoint(8, 2)}) < model.log_time(without)


DOTS = replace(WIDE, features=frozenset({"avx512bf16", "avx512vnni"}))


@pytest.mark.parametrize(
    ("text", "tiles"),
    [
        ("m=16,n=4096,k=4096,dtype=i8", ["4x4w64", "2x8w64"]),
        ("m=32,n=11008,k=3000,dtype=i8", ["4x4w64", "4x4w32"]),  # rows longer than a page
        ("m=6,n=5000,k=5000,dtype=i8", ["2x8w64", "2x8w32"]),  # no rows are left over
        ("m=16,n=4096,k=4096,dtype=bf16", ["8x2w64", "8x2w32"]),
        ("m=24,n=500,k=500,dtype=i8", ["4x4w64", "4x4w32"]),  # near: none is fetched ahead
        ("m=4,n=4096,k=4096,dtype=i8", []),  # one tile has all rows
        ("m=1,n=4096,k=4096,dtype=i8", []),
        ("m=16,n=4096,k=4096,dtype=f32", []),  # no words
    ],
)
def test_tiles_that_share_words_come_early(text: str, tiles: list[str]) -> None:
    space = Space(parse_problem(f"matmul:{text}"), DOTS)
    rows = space.workload.nest.extent("m")
    points = prior_points(AnalyticalModel.shipped(space), 4)
    shared = [
        point for point in points if (tile := point["tile"]).kind == "sweep" and tile.rows < rows
    ]
    assert [str(point["tile"]) for point in shared][: len(tiles)] == tiles
    if tiles:
        assert points[0] == shared[0]
        assert bool(nest_at(space, points[0]).fetches) == (True in space.values("prefetch"))


@pytest.mark.parametrize(
    ("text", "streams"),
    [
        ("matmul:m=128,n=4096,k=4096,dtype=bf16,weights=constant", True),
        ("matmul:m=64,n=1024,k=4096,dtype=i8,weights=constant", True),
        ("matmul:m=128,n=4096,k=4096,dtype=bf16", False),
        ("matmul:m=384,n=1024,k=4096,dtype=bf16,weights=constant", False),
    ],
)
def test_matrix_tiles_of_few_rows_begin_with_streamed_packed_weights(
    text: str, streams: bool
) -> None:
    amx = replace(WIDE, features=implied("emeraldrapids"), l2_bytes=2 << 20)
    first, *_ = matrix_points(Space(parse_problem(text), amx))
    assert first["tile"].kind == "matrix"
    assert (first["outer"] == "cols", bool(first.get("prefetch"))) == (streams, streams)
