import math
import random

import pytest

from tests.search.nests import nest_at
from tests.search.targets import NARROW, SQUARE, WIDE
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import (
    Fuse,
    Jam,
    Nontemporal,
    Pack,
    Parallel,
    Schedule,
    Split,
    check_legal,
    loop_nest,
)
from tilewise.kernels.target import Target
from tilewise.kernels.target.machine import described
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space
from tilewise.search.space.tiles import register_tiles, split_tiles, swept_tiles


def test_register_tiles_fit_the_registers() -> None:
    for target in (WIDE, NARROW):
        space = Space(SQUARE, target)
        assert register_tiles(space.workload)
        for rows, vectors in register_tiles(space.workload):
            assert rows * vectors + vectors + 1 <= target.vector_registers
    first = prior_points(AnalyticalModel.shipped(Space(SQUARE, WIDE)), 1)[0]
    assert first["tile"].rows * first["tile"].vectors >= 20  # the registers are there to be used


def test_single_pixels_are_fused_for_matrix_tiles_alone() -> None:
    server = described("sapphirerapids", ("avx512f", "fma", "avx2", "amx-tile", "amx-bf16"))
    text = "conv2d:n=1,h=7,w=7,ci=64,co=64,kh=1,kw=1"
    space = Space(parse_problem(f"{text},dtype=bf16"), server)
    points = prior_points(AnalyticalModel.shipped(space), 4)
    for point in points:
        schedule = space.schedule(point)
        assert isinstance(schedule, Schedule) and schedule.steps[0] == Fuse()
        assert loop_nest(space.problem, schedule).extent("m") == 49
    for problem, target in (
        (f"{text},dtype=f32", server), (f"{text},dtype=bf16", WIDE),
        (f"{text},dtype=bf16,stride=2", server),
    ):  # fmt: skip
        other = Space(parse_problem(problem), target)
        assert not other.workload.fuses and other.workload.problem == other.problem


NARROW_RESULTS = [
    "matmul:m=3072,n=1,k=1024,dtype=f32",
    "matmul:m=2048,n=4,k=512,dtype=i8",
    "matmul:m=1,n=4096,k=4096,dtype=f32,transpose_b",
    "matmul:batch=3,m=4,n=77,k=63,dtype=bf16,transpose_b",
    "matmul:m=1,n=1,k=1,dtype=f64",
]


def splits(schedule: Schedule) -> bool:
    return any(isinstance(step, Split) for step in schedule.steps)


@pytest.mark.parametrize("text", NARROW_RESULTS)
@pytest.mark.parametrize("target", [WIDE, NARROW])
def test_narrow_results_are_offered_splits_of_the_reduction(text: str, target: Target) -> None:
    problem = parse_problem(text)
    space = Space(problem, target)
    if not split_tiles(space.workload):
        assert target is NARROW  # four columns fill its vectors
        return
    first = [splits(space.schedule(p)) for p in prior_points(AnalyticalModel.shipped(space), 12)]
    assert first[0]
    if problem.m * problem.n > 1:
        assert not all(first)  # a script needs one that does not split
    for tile in split_tiles(space.workload):
        assert tile.vectors <= problem.n and tile.rows <= problem.m


@pytest.mark.parametrize(
    "text",
    [
        "matmul:m=1,n=512,k=256,dtype=bf16,b=i4,group=32,transpose_b,weights=constant",
        "matmul:m=1024,n=1024,k=1024,dtype=f32",
        "matmul:m=1,n=4096,k=4096,dtype=f32",
        "matmul:m=64,n=1,k=512,dtype=f32,transpose_a",
        "matmul:m=64,n=9,k=512,dtype=f32",
        # B is packed for many rows, ahead, or for a reduction that is soon over
        "matmul:m=256,n=64,k=512,dtype=f32,transpose_b",
        "matmul:m=8,n=64,k=512,dtype=f32,transpose_b,weights=constant",
        "matmul:m=8,n=64,k=64,dtype=f32,transpose_b",
        "matmul:m=8,n=64,k=512,dtype=f32,transpose_a,transpose_b",
        "conv2d:n=1,h=9,w=9,ci=8,co=1,kh=3,kw=3,dtype=f32",
    ],
)
def test_no_split_is_offered_where_columns_fill_vectors(text: str) -> None:
    assert split_tiles(Space(parse_problem(text), WIDE).workload) == ()


@pytest.mark.parametrize("target", [WIDE, NARROW, WIDE.with_threads(2)], ids=str)
@pytest.mark.parametrize(
    "text",
    [
        "matmul:m=1,n=4096,k=4096,dtype=bf16",
        "matmul:m=1,n=1000,k=1000,dtype=f32,transpose_a",
        "matmul:batch=2,m=8,n=300,k=64,dtype=i8,bias",
        "matmul:m=5,n=4096,k=33,dtype=f64,weights=constant",
        "matmul:m=16,n=512,k=300,dtype=i8",
        "matmul:m=29,n=300,k=64,dtype=f16",
    ],
)
def test_results_of_few_rows_are_offered_sweeps(text: str, target: Target) -> None:
    problem = parse_problem(text)
    space = Space(problem, target)
    offered = swept_tiles(space.workload)
    assert offered and set(offered) <= set(space.values("tile"))
    first = [space.schedule(p) for p in prior_points(AnalyticalModel.shipped(space), 16)]
    swept = [loop_nest(problem, schedule).is_skinny for schedule in first]
    assert any(swept) and not all(swept)
    for tile in offered:
        assert tile.rows <= problem.m and tile.kind == "sweep"
        point = {p.name: p.values[0] for p in space.parameters} | {"tile": tile}
        schedule = space.schedule(point)
        nest = loop_nest(problem, schedule)
        assert nest.is_skinny and nest.k_block is not None
        assert (nest.k_block.step, nest.k_block.streams) == (tile.depth, tile.streams)
        plan(problem, schedule, target)


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


PROBLEMS = (
    "conv2d:n=1,h=112,w=112,ci=96,co=96,kh=3,kw=3,stride=2,pad=1,groups=96,dtype=f32",
    "conv2d:n=2,h=7,w=7,ci=960,co=960,kh=3,kw=3,pad=1,groups=960,dtype=f32",
    "conv2d:n=1,h=9,w=5,ci=24,co=72,kh=5,kw=5,pad=2,groups=24,dtype=i8,bias",
    "conv2d:n=1,h=1,w=1,ci=6,co=6,kh=1,kw=1,groups=6,dtype=f64",
    "conv2d:n=2,h=14,w=48,ci=32,co=64,kh=3,kw=3,pad=1,groups=32,layout=nchw_fchw,dtype=f32",
    "conv2d:n=1,h=31,w=31,ci=16,co=16,kh=11,kw=11,pad=5,groups=16,dtype=f32",
)


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
