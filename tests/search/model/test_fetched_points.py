from math import gcd

import pytest

from tests.search.nests import nest_at
from tests.search.targets import FAR
from tilewise.kernels.nest import LoopKind
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Prefetch, Stream, Tile, loop_nest
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.initial_candidates import fetched_points, rows_in_l2
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space


@pytest.mark.parametrize(
    ("text", "packs"),
    [
        ("matmul:m=35,n=700,k=2048,dtype=f32", False),
        ("matmul:m=150,n=800,k=2500,dtype=f64", False),
        ("matmul:m=150,n=3072,k=900,dtype=f32", True),  # whose rows share few sets of L2
        ("matmul:m=900,n=1024,k=1024,dtype=i32", True),
    ],
)
def test_a_search_for_a_far_b_begins_with_blocks_that_are_fetched_ahead(
    text: str, packs: bool
) -> None:
    space = Space(parse_problem(text), FAR)
    first = prior_points(AnalyticalModel.shipped(space), 1)[0]
    schedule = space.schedule(first)
    nest = loop_nest(space.problem, schedule)
    assert nest.fetches and nest.loops_of(LoopKind.MICRO)[-1].dim == nest.col
    assert (nest.stage("B") is not None) == packs
    kinds = [type(step) for step in schedule.steps]
    assert kinds.index(Stream) < kinds.index(Tile) < kinds.index(Prefetch)
    assert nest.k_block is not None
    assert packs or 2 * nest.k_block.step <= rows_in_l2(space)


def test_rows_in_l2_are_fewer_where_they_share_sets() -> None:
    """Of 2 MiB in 16 ways, a way has 128 KiB; a quarter of the ways is left to others."""
    for n in (700, 768, 1024, 4096):
        space = Space(parse_problem(f"matmul:m=64,n={n},k=4096,dtype=f32"), FAR)
        assert rows_in_l2(space) == 12 * (2**17 // gcd(4 * n, 2**17))


def test_panels_that_cannot_be_cut_are_left_out() -> None:
    """1032 columns are 43 panels of 24."""
    space = Space(parse_problem("matmul:m=1024,n=1024,k=1024,dtype=f64"), FAR)
    widths = {nest_at(space, p).tile.cols for p in fetched_points(space)}
    assert widths == {32}


def test_the_model_knows_what_is_fetched_in_place_and_what_stays_outside() -> None:
    space = Space(parse_problem("matmul:m=400,n=800,k=2500,dtype=f32"), FAR)
    model, point = AnalyticalModel.shipped(space), next(fetched_points(space))
    assert model.log_time(point) < model.log_time(point | {"prefetch": False})
    assert model.log_time(point) < model.log_time(point | {"chunks": "inner"})
