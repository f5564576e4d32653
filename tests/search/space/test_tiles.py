"""Register tiles, threads and lines in a space, and sizes of IREE's levels."""

import random
from dataclasses import replace
from random import Random

import pytest

from tests.kernels.emulated_tiles import ALDER_LAKE
from tests.search.targets import NARROW, SQUARE, WIDE, nest_at
from tilewise.kernels.mlir.cpu.range_script import emit_range_script
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.tuning_spec.config import Configuration
from tilewise.kernels.mlir.tuning_spec.form import form_of
from tilewise.kernels.mlir.tuning_spec.text import check_levels, outgrows_stack
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.problem.ranges import parse_range
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import (
    Fuse,
    Jam,
    Nontemporal,
    Pack,
    Parallel,
    Schedule,
    Split,
    Strassen,
    loop_nest,
)
from tilewise.kernels.target import Target
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.levels import LevelModel, level_starts
from tilewise.search.model.prior import prior_points
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space
from tilewise.search.space.tiles import register_tiles, skinny_tiles, split_tiles
from tilewise.search.transfer.scripted import in_lines, range_in_lines, scripted_schedules


def test_register_tiles_fit_the_registers() -> None:
    for target in (WIDE, NARROW):
        space = Space(SQUARE, target)
        assert register_tiles(space.workload)
        for rows, vectors in register_tiles(space.workload):
            assert rows * vectors + vectors + 1 <= target.vector_registers
    first = prior_points(AnalyticalModel.shipped(Space(SQUARE, WIDE)), 1)[0]
    assert first["tile"].rows * first["tile"].vectors >= 20  # the registers are there to be used


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_single_pixels_are_fused_and_others_are_not(dtype: str) -> None:
    text = f"conv2d:n=1,h=7,w=7,ci=64,co=64,kh=1,kw=1,dtype={dtype}"
    space = Space(parse_problem(text), WIDE)
    points = prior_points(AnalyticalModel.shipped(space), 4)
    for point in points:
        schedule = space.schedule(point)
        assert isinstance(schedule, Schedule) and schedule.steps[0] == Fuse()
        assert loop_nest(space.problem, schedule).extent("m") == 49
    lines = scripted_schedules(space.problem, WIDE, points, 4)
    assert len({one.hash for one in lines}) == 4
    for like, point in zip(lines, points[:2], strict=False):
        assert emit_script(space.problem, like)
        assert loop_nest(space.problem, like).tile.rows == min(7, point["tile"].rows)
    sizes = parse_range(text.replace("n=1,", "n=1..3,"))
    (line,) = range_in_lines(RangeSchedule(sizes, (schedule,), (0, 0, 0)), WIDE).variants
    assert emit_range_script(RangeSchedule(sizes, (line,), (0, 0, 0)))
    assert in_lines(space.problem, WIDE, line) == line
    other = Space(parse_problem(f"{text},stride=2"), WIDE)
    assert other.workload.fused is None and other.workload.problem == other.problem


@pytest.mark.parametrize("threads", [1, 2])
def test_fast_algorithms_of_single_pixels_are_of_the_convolution(threads: int) -> None:
    text = "conv2d:n=1,h=14,w=14,ci=1024,co=512,kh=1,kw=1,dtype=f32,weights=constant"
    space = Space(parse_problem(text), WIDE.with_threads(threads))
    found = [space.schedule(one) for one in prior_points(AnalyticalModel.shipped(space), 8)]
    assert all(space.why_illegal(one) is None for one in found)
    assert {
        loop_nest(space.problem, one).extent("co" if one.steps[0] == Strassen(1) else "n")
        for one in found
    } == {256, 512}


@pytest.mark.parametrize("text", [
    "matmul:m=3072,n=1,k=1024,dtype=f32", "matmul:m=2048,n=4,k=512,dtype=i8",
    "matmul:m=1,n=4096,k=4096,dtype=f32,transpose_b", "matmul:m=1,n=1,k=1,dtype=f64",
    "matmul:batch=3,m=4,n=77,k=63,dtype=bf16,transpose_b",
])  # fmt: skip
@pytest.mark.parametrize("target", [WIDE, NARROW])
def test_narrow_results_are_offered_splits_of_the_reduction(text: str, target: Target) -> None:
    problem = parse_problem(text)
    space = Space(problem, target)
    if not split_tiles(space.workload):
        assert target is NARROW, "four columns fill its vectors"
        return
    schedules = [space.schedule(p) for p in prior_points(AnalyticalModel.shipped(space), 12)]
    first = [any(isinstance(step, Split) for step in one.steps) for one in schedules]
    assert first[0]
    if problem.m * problem.n > 1:
        assert not all(first)  # a script needs one that does not split
    for tile in split_tiles(space.workload):
        assert tile.vectors <= problem.n and tile.rows <= problem.m


@pytest.mark.parametrize("text", [
    "matmul:m=1,n=512,k=256,dtype=bf16,b=i4,group=32,transpose_b,weights=constant",
    "matmul:m=1024,n=1024,k=1024,dtype=f32", "matmul:m=1,n=4096,k=4096,dtype=f32",
    "matmul:m=64,n=1,k=512,dtype=f32,transpose_a", "matmul:m=64,n=9,k=512,dtype=f32",
    # B is packed for many rows, ahead, or for a reduction that is soon over
    "matmul:m=256,n=64,k=512,dtype=f32,transpose_b",
    "matmul:m=8,n=64,k=512,dtype=f32,transpose_b,weights=constant",
    "matmul:m=8,n=64,k=64,dtype=f32,transpose_b",
    "matmul:m=8,n=64,k=512,dtype=f32,transpose_a,transpose_b",
    "conv2d:n=1,h=9,w=9,ci=8,co=1,kh=3,kw=3,dtype=f32",
])  # fmt: skip
def test_no_split_is_offered_where_columns_fill_vectors(text: str) -> None:
    assert split_tiles(Space(parse_problem(text), WIDE).workload) == ()


@pytest.mark.parametrize("target", [WIDE, NARROW, ALDER_LAKE], ids=str)
@pytest.mark.parametrize("a", ["bf16", "f32", "f32,a=dynamic_i8"])
def test_any_number_of_rows_has_tiles_of_quantised_weights(a: str, target: Target) -> None:
    for rows in range(1, 9):
        text = f"matmul:m={rows},n=96,k=64,dtype={a},b=i4,group=32,scale=f32,weights=constant"
        assert Space(parse_problem(text), target).values("tile")


@pytest.mark.parametrize("target", [WIDE, NARROW, WIDE.with_threads(2)], ids=str)
@pytest.mark.parametrize("text", [
    "matmul:m=1,n=4096,k=4096,dtype=bf16", "matmul:m=1,n=1000,k=1000,dtype=f32,transpose_a",
    "matmul:batch=2,m=8,n=300,k=64,dtype=i8,bias", "matmul:m=16,n=512,k=300,dtype=i8",
    "matmul:m=5,n=4096,k=33,dtype=f64,weights=constant", "matmul:m=29,n=300,k=64,dtype=f16",
])  # fmt: skip
def test_results_of_few_rows_are_offered_skinny_gemms(text: str, target: Target) -> None:
    problem = parse_problem(text)
    space = Space(problem, target)
    offered = skinny_tiles(space.workload)
    assert offered and set(offered) <= set(space.values("tile"))
    first = [space.schedule(p) for p in prior_points(AnalyticalModel.shipped(space), 16)]
    skinny = [loop_nest(problem, schedule).is_skinny for schedule in first]
    assert any(skinny) and not all(skinny)
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


def test_a_split_reads_in_place_what_it_can() -> None:
    for cols, packs in ((1, []), (2, [Pack("B")])):
        space = Space(parse_problem(f"matmul:m=64,n={cols},k=512,dtype=bf16"), WIDE)
        schedule = space.schedule(prior_points(AnalyticalModel.shipped(space), 1)[0])
        assert [step for step in schedule.steps if isinstance(step, Pack)] == packs


@pytest.mark.parametrize(("text", "is_offered"), [
    ("matmul:m=128,n=3072,k=768,dtype=f32", True),
    ("matmul:m=128,n=64,k=768,dtype=f32", False),
    ("matmul:m=128,n=3072,k=768,dtype=f32,transpose_b", False),
    ("matmul:m=128,n=3072,k=768,dtype=f32,weights=constant", True),
    ("matmul:m=128,n=64,k=768,dtype=f32,weights=constant", False),
    ("conv2d:n=1,h=7,w=7,ci=512,co=512,kh=3,kw=3,pad=1,dtype=f32,accuracy=strict", True),
    ("conv2d:n=1,h=99,w=99,ci=512,co=9,kh=3,kw=3,layout=nchw_fchw,dtype=f32", False),
])  # fmt: skip
def test_a_large_b_can_be_prefetched_but_where_it_is_transposed_or_gathered(text, is_offered):
    space = Space(parse_problem(text), WIDE)
    assert any(p.name == "prefetch" for p in space.parameters) == is_offered
    tiled = {"cols": 64, "depth": 128, "pack_b": True, "prefetch": True}
    if is_offered:
        first = prior_points(AnalyticalModel.shipped(space), 1)[0]
        assert nest_at(space, first | tiled).fetches


PROBLEMS = (
    "conv2d:n=1,h=112,w=112,ci=96,co=96,kh=3,kw=3,stride=2,pad=1,groups=96,dtype=f32",
    "conv2d:n=2,h=7,w=7,ci=960,co=960,kh=3,kw=3,pad=1,groups=960,dtype=f32",
    "conv2d:n=1,h=9,w=5,ci=24,co=72,kh=5,kw=5,pad=2,groups=24,dtype=i8,bias",
    "conv2d:n=1,h=1,w=1,ci=6,co=6,kh=1,kw=1,groups=6,dtype=f64",
    "conv2d:n=2,h=14,w=48,ci=32,co=64,kh=3,kw=3,pad=1,groups=32,layout=nchw_fchw,dtype=f32",
    "conv2d:n=1,h=31,w=31,ci=16,co=16,kh=11,kw=11,pad=5,groups=16,dtype=f32",
)


def test_a_tile_that_computes_in_its_registers_is_thought_faster() -> None:
    space = Space(parse_problem(PROBLEMS[0]), WIDE)
    model = AnalyticalModel.shipped(space)
    base = prior_points(model, 1)[0] | {"lines": 1, "nontemporal": False}
    wide = model.log_time(base | {"tile": TilePoint(4, 1), "lines": 2})
    assert wide < model.log_time(base | {"tile": TilePoint(1, 1)})


def test_what_a_problem_has_no_use_for_is_no_choice() -> None:
    pixels, ragged, planes = (Space(parse_problem(PROBLEMS[i]), WIDE) for i in (0, 2, 4))
    assert planes.values("lines") == (1,)
    assert planes.values("nontemporal") == (False, True)  # lines of 48 are three vectors
    assert ragged.values("nontemporal") == (False,)
    draws = random.Random(2)
    drawn = [pixels.schedule(pixels.draw(draws)) for _ in range(50)]
    assert {Jam, Nontemporal} <= {type(step) for one in drawn for step in one.steps}


IREE = replace(WIDE, kind="iree")
OF_IREE = [
    "matmul:m=512,n=512,k=512,dtype=f32",
    "matmul:m=1,n=7,k=3,dtype=f64",
    "matmul:batch=5,m=129,n=65,k=1,dtype=bf16,bias",
    "conv2d:n=1,h=14,w=14,ci=1024,co=256,kh=1,kw=1,dtype=f32",
    "conv2d:n=3,h=15,w=15,ci=64,co=96,kh=1,kw=1,stride=2,layout=nchw_fchw,dtype=i8",
    "conv2d:n=2,h=14,w=14,ci=64,co=96,kh=3,kw=3,dtype=f32",
]


@pytest.mark.parametrize("target", [IREE, replace(NARROW, kind="iree")], ids=["wide", "narrow"])
@pytest.mark.parametrize("text", OF_IREE)
def test_every_point_means_steps_of_the_op(text: str, target) -> None:
    space, random = Space(parse_problem(text), target), Random(text)
    form, model = form_of(space.problem), LevelModel(space)
    points = [*level_starts(model), *(space.draw(random) for _ in range(50))]
    for point in points:
        assert space.holds(point)
        config = space.schedule(point)
        check_levels(form, config)
        assert Configuration.from_json(config.to_json()) == config
        for level in ("distribution", "vector_common_parallel"):
            assert {t.dim for t in config.tiles_at(level)} == set(form.parallel)
        vectors = {t.dim: t.size for t in config.tiles_at("vector_common_parallel")}
        for share in config.tiles_at("distribution"):
            is_whole = share.size == form.extent(share.dim)
            assert is_whole or share.size % vectors[share.dim] == 0, str(share)
        assert len(space.encode(point)) == len(space.encode(points[0]))
        assert model.log_time(point) == model.log_time(dict(point))
        assert all(space.holds(near) for near in space.neighbours(point))


def test_remainders_are_peeled_and_only_those() -> None:
    space = Space(parse_problem("matmul:m=512,n=512,k=512,dtype=f32"), IREE)
    even = level_starts(LevelModel(space))[0]
    assert space.schedule(even).remainders == "masked"
    assert space.schedule(even | {"tile": TilePoint(12, 32, "iree")}).remainders == "peeled"


def test_a_cut_reduction_with_an_epilogue_fits_the_stack() -> None:
    text = "matmul:m=512,n=512,k=512,dtype=f32"
    sizes = {"tile": TilePoint(8, 32, "iree"), "rows": 0, "cols": 0, "cache_depth": 128}
    for more, is_legal in (("", True), (",bias", False)):
        space = Space(parse_problem(text + more), IREE)
        point = level_starts(LevelModel(space))[0] | sizes
        assert outgrows_stack(form_of(space.problem), space.schedule(point))
        assert (space.legal_hash(point) is not None) == is_legal
        small = point | {"cache_rows": 64, "cache_cols": 64}
        assert space.legal_hash(small) is not None
