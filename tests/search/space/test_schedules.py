from itertools import product

import pytest

from tests.search.nests import nest_at
from tests.search.targets import WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Parallel, check_legal
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space

LARGE = parse_problem("matmul:m=128,n=3072,k=768,dtype=f32")


def test_the_result_is_divided_among_the_threads() -> None:
    space = Space(LARGE, WIDE.with_threads(6))
    (parameter,) = (p for p in space.parameters if p.name == "parallel")
    assert parameter.values == ("none", "m=6", "n=6", "m=2,n=3", "m=3,n=2")
    point = prior_points(AnalyticalModel.shipped(space), 1)[0]
    assert space.schedule(point).steps[0] == Parallel("n", 6)
    both = space.schedule(point | {"parallel": "m=2,n=3"})
    assert both.steps[:2] == (Parallel("m", 2), Parallel("n", 3))
    assert len(nest_at(space, point | {"parallel": "none"}).parts) == 1
    assert all(p.name != "parallel" for p in Space(LARGE, WIDE).parameters)


def test_a_dim_has_no_more_parts_than_register_tiles() -> None:
    space = Space(parse_problem("matmul:m=5,n=40,k=9,dtype=f32"), WIDE.with_threads(6))
    for point in prior_points(AnalyticalModel.shipped(space), 20):
        check_legal(space.problem, space.schedule(point | {"parallel": "n=6"}))


def test_a_split_reads_in_place_what_it_can() -> None:
    space = Space(parse_problem("matmul:m=64,n=1,k=512,dtype=bf16"), WIDE)
    schedule = space.schedule(prior_points(AnalyticalModel.shipped(space), 1)[0])
    assert not any(isinstance(step, Pack) for step in schedule.steps)
    space = Space(parse_problem("matmul:m=64,n=2,k=512,dtype=bf16"), WIDE)
    assert nest_at(space, prior_points(AnalyticalModel.shipped(space), 1)[0]).stage("B")


@pytest.mark.parametrize(
    ("text", "is_offered"),
    [
        ("matmul:m=128,n=3072,k=768,dtype=f32", True),
        ("matmul:m=128,n=64,k=768,dtype=f32", False),
        ("matmul:m=128,n=3072,k=768,dtype=f32,transpose_b", False),
        ("matmul:m=128,n=3072,k=768,dtype=f32,weights=constant", True),
        ("matmul:m=128,n=64,k=768,dtype=f32,weights=constant", False),
        ("conv2d:n=1,h=7,w=7,ci=512,co=512,kh=3,kw=3,pad=1,dtype=f32,accuracy=strict", True),
        ("conv2d:n=1,h=99,w=99,ci=512,co=9,kh=3,kw=3,layout=nchw_fchw,dtype=f32", False),
    ],
)
def test_a_large_b_can_be_prefetched_but_where_it_is_transposed_or_gathered(
    text: str, is_offered: bool
) -> None:
    space = Space(parse_problem(text), WIDE)
    assert any(p.name == "prefetch" for p in space.parameters) == is_offered
    tiled = prior_points(AnalyticalModel.shipped(space), 1)[0] | {
        "cols": 64,
        "depth": 128,
        "pack_b": True,
    }
    if is_offered:
        assert nest_at(space, tiled | {"prefetch": True}).fetches


@pytest.mark.parametrize(
    "text",
    [
        "matmul:m=16,n=8,k=65536,dtype=f32",
        "matmul:m=8,n=512,k=4096,dtype=f32,transpose_b",
        "matmul:m=64,n=3,k=300000,dtype=bf16",
    ],
)
def test_split_tiles_are_legal_with_every_other_choice(text: str) -> None:
    space = Space(parse_problem(text), WIDE)
    names = [p.name for p in space.parameters if p.name != "tile"]
    chosen = [tile for tile in space.values("tile") if tile.kind == "split"]
    assert chosen
    for tile, index in product(chosen, range(8)):
        point = {name: space.values(name)[index % len(space.values(name))] for name in names}
        check_legal(space.problem, space.schedule(point | {"tile": tile}))
