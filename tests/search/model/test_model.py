"""The analytical model, its prior, and what both make of fast algorithms."""

from dataclasses import replace
from math import gcd, log, prod
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.kernels.strategies import problems
from tests.search.targets import AMX, FAR, NARROW, WIDE, nest_at
from tilewise.kernels.native.plan import plan
from tilewise.kernels.nest import LoopKind, count
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Prefetch, Stream, Tile, loop_nest
from tilewise.kernels.target import Target, cores
from tilewise.search.model.analytical import AnalyticalModel, amounts
from tilewise.search.model.initial_candidates import fetched_points, matrix_points, rows_in_l2
from tilewise.search.model.prior import direct_schedules, prior_points
from tilewise.search.space.algorithms import ALGORITHM, WANTED, algorithm_of
from tilewise.search.space.points import Point, TilePoint
from tilewise.search.space.space import Space


def model(text: str, target: Target = WIDE) -> AnalyticalModel:
    return AnalyticalModel.shipped(Space(parse_problem(text), target))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW, WIDE.with_threads(6)]), st.integers(0, 2**31))
def test_one_schedule_has_one_modelled_time(problem, target, seed) -> None:
    space, random = Space(problem, target), Random(seed)
    model = AnalyticalModel.shipped(space)
    for point in [*(space.draw(random) for _ in range(3)), *prior_points(model, 1)]:
        schedule, time = space.schedule(point), model.log_time(point)
        for other in space.neighbours(point):
            if space.schedule(other) == schedule:
                assert model.log_time(other) == pytest.approx(time)


@pytest.mark.parametrize(("text", "divisions"), [
    ("matmul:batch=4,m=16,n=512,k=512", ("batch=2", "n=2")),  # panels and skinny tiles
    ("matmul:batch=2,m=4,n=64,k=512,transpose_b", ("batch=2", "n=2")),  # and split ones
    ("conv2d:n=1,h=56,w=56,ci=64,co=64,kh=3,kw=3,pad=1,groups=64", ("oh=2", "co=2")),
])  # fmt: skip
def test_two_threads_take_half_of_the_modelled_cycles(text: str, divisions: list[str]) -> None:
    found = model(f"{text},dtype=f32", WIDE.with_threads(2))
    base = {p.name: p.values[0] for p in found.space.parameters}
    for tile in {tile.kind: tile for tile in found.space.values("tile")[::-1]}.values():
        points = [base | {"tile": tile, "parallel": value} for value in ("none", *divisions)]
        one, *halves = map(found.log_time, points)
        assert halves == pytest.approx([one - log(2)] * 2, abs=0.05), tile


@pytest.mark.parametrize(("text", "threads"), [
    ("m=8,n=960,k=4096", 16), ("m=4,n=120,k=512", 2), ("m=8,n=1024,k=1024,weights=constant", 32),
    ("m=64,n=960,k=512", 16), ("batch=5,m=64,n=64,k=64", 4), ("m=256,n=256,k=256", 2),
])  # fmt: skip
def test_the_first_schedules_divide_the_result_equally(text: str, threads: int) -> None:
    problem = parse_problem(f"matmul:{text},dtype=f32")
    for schedule in direct_schedules(problem, WIDE.with_threads(threads), 6):
        nest = loop_nest(problem, schedule)
        share = prod(nest.part(dim) / nest.extent(dim) for dim in nest.extents)
        assert share <= 1.15 / threads, schedule


def test_the_model_knows_what_a_dilated_filter_packs_of_an_image() -> None:
    modelled, counted = [], []
    for dilation in (1, 3):  # padded to outputs as many
        text = f"n=1,h=56,w=56,ci=64,co=64,kh=3,kw=3,pad={dilation},dilation={dilation},dtype=f32"
        space = Space(parse_problem(f"conv2d:{text}"), WIDE)
        point = {p.name: p.values[0] for p in space.parameters}
        point |= {"pack_a": True, "cols": 0, "image_rows": 2}
        nest = loop_nest(space.problem, space.schedule(point))
        modelled.append(amounts(space, point)["packed_a"])
        counted.append(count(nest).packed_bytes["A"])
    assert modelled[1] / modelled[0] == pytest.approx(counted[1] / counted[0], rel=0.1)


@pytest.mark.parametrize(("text", "packs"), [
    ("matmul:m=35,n=700,k=2048,dtype=f32", False),
    ("matmul:m=150,n=800,k=2500,dtype=f64", False),
    ("matmul:m=150,n=3072,k=900,dtype=f32", True),  # whose rows share few sets of L2
    ("matmul:m=900,n=1024,k=1024,dtype=i32", True),
])  # fmt: skip
def test_a_search_for_a_far_b_begins_with_blocks_that_are_fetched_ahead(text, packs) -> None:
    far = model(text, FAR)
    schedule = far.space.schedule(prior_points(far, 1)[0])
    nest = loop_nest(far.space.problem, schedule)
    assert nest.fetches and nest.loops_of(LoopKind.MICRO)[-1].dim == nest.col
    assert (nest.stage("B") is not None) == packs
    kinds = [type(step) for step in schedule.steps]
    assert kinds.index(Stream) < kinds.index(Tile) < kinds.index(Prefetch)
    assert packs or 2 * nest.k_block.step <= rows_in_l2(far.space)


def test_rows_in_l2_are_fewer_where_they_share_sets() -> None:
    """Of 2 MiB in 16 ways, a way has 128 KiB; a quarter of the ways is left to others."""
    for n in (700, 768, 1024, 4096):
        space = Space(parse_problem(f"matmul:m=64,n={n},k=4096,dtype=f32"), FAR)
        assert rows_in_l2(space) == 12 * (2**17 // gcd(4 * n, 2**17))


def test_the_model_knows_what_is_fetched_in_place_and_what_stays_outside() -> None:
    far = model("matmul:m=400,n=800,k=2500,dtype=f32", FAR)
    point = next(fetched_points(far.space))
    for other in ({"prefetch": False}, {"chunks": "inner"}):
        assert far.log_time(point) < far.log_time(point | other)


PROBLEMS = (
    "matmul:m=35,n=700,k=2048,dtype=f32",
    "matmul:m=28,n=1024,k=2048,dtype=f32,weights=constant",
    "matmul:m=1024,n=1024,k=1024,dtype=f32",
    "conv2d:n=1,h=7,w=7,ci=512,co=512,kh=3,kw=3,pad=1,dtype=f32,weights=constant",
    "conv2d:n=1,h=56,w=56,ci=128,co=128,kh=3,kw=3,pad=1,dtype=f32",
)

WIDE_FILTER = "conv2d:n=1,h=14,w=14,ci=1,co=8192,kh=7,kw=7,pad=3,dtype=f32,weights=constant"


def decided(text: str, cpu: str) -> tuple[object, ...]:
    """The space of a problem, its first points, their times, and what kernels fetch ahead."""
    found = model(text, replace(FAR, cpu=cpu))
    space, points = found.space, prior_points(found, 6)
    schedules = map(space.schedule, points)
    specs = [plan(space.problem, schedule, space.target).kernel.spec for schedule in schedules]
    return space.parameters, points, list(map(found.log_time, points)), specs


@pytest.mark.parametrize("text", PROBLEMS)
def test_facts_decide(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    far, near = cores.core_of("emeraldrapids")[0], cores.core_of("skylake-avx512")[0]
    assert decided(text, "emeraldrapids") != decided(text, "skylake-avx512")
    known = replace(near, transforms=far.transforms, far_l3=far.far_l3, broadcasts=far.broadcasts)
    monkeypatch.setitem(cores._CORES, "skylake-avx512", known)
    assert decided(text, "skylake-avx512") == decided(text, "emeraldrapids")


@settings(max_examples=60, deadline=None, derandomize=True)
@example(parse_problem("matmul:m=64,n=512,k=512,dtype=bf16,transpose_b"), AMX)
@example(parse_problem(WIDE_FILTER), WIDE)
@given(problems, st.sampled_from([WIDE, NARROW, AMX]))
def test_the_prior_proposes_different_points_of_the_space(problem, target) -> None:
    space = Space(problem, target)
    points = prior_points(AnalyticalModel.shipped(space), 16)
    assert points
    hashes = [space.schedule(p).hash for p in points]
    assert len(set(hashes)) == len(hashes)
    for point in points:
        assert all(point[p.name] in p.values for p in space.parameters)


@pytest.mark.parametrize("name", ["outer", "unroll", "pack_a", "depth", "cols", "rows"])
def test_the_descent_moves_each_parameter(name: str) -> None:
    space = Space(parse_problem("matmul:m=512,n=512,k=512,dtype=f32"), WIDE)
    for value in space.values(name):
        likes_one = SimpleNamespace(space=space, log_time=lambda p, v=value: float(p[name] != v))
        assert prior_points(likes_one, 1)[0][name] == value


@pytest.mark.parametrize("dtype", ["bf16", "i8", "f32"])
def test_panels_packed_ahead_are_streamed_beside_all_rows_first(dtype: str) -> None:
    found = model(f"matmul:m=16,n=4096,k=4096,dtype={dtype},weights=constant")
    first = prior_points(found, 1)[0]
    assert first["tile"] == TilePoint(16, 1) and nest_at(found.space, first).fetches
    without = first | {"prefetch": False}
    assert found.log_time(first) < found.log_time(without)
    assert found.log_time(without | {"tile": TilePoint(8, 2)}) < found.log_time(without)


@pytest.mark.parametrize(("text", "tiles"), [
    ("m=16,n=4096,k=4096,dtype=i8", ["4x4w64", "2x8w64"]),
    ("m=32,n=11008,k=3000,dtype=i8", ["4x4w64", "4x4w32"]),  # rows longer than a page
    ("m=6,n=5000,k=5000,dtype=i8", ["2x8w64", "2x8w32"]),  # no rows are left over
    ("m=16,n=4096,k=4096,dtype=bf16", ["8x2w64", "8x2w32"]),
    ("m=24,n=500,k=500,dtype=i8", ["4x4w64", "4x4w32"]),  # near: none is fetched ahead
    ("m=4,n=4096,k=4096,dtype=i8", []),  # one tile has all rows
    ("m=1,n=4096,k=4096,dtype=i8", []),
    ("m=16,n=4096,k=4096,dtype=f32", []),  # no words
])  # fmt: skip
def test_tiles_that_share_words_come_early(text: str, tiles: list[str]) -> None:
    dots = replace(WIDE, features=frozenset({"avx512bf16", "avx512vnni"}))
    space = Space(parse_problem(f"matmul:{text}"), dots)
    rows = space.workload.nest.extent("m")
    points = prior_points(AnalyticalModel.shipped(space), 4)
    shared = [
        point for point in points if (tile := point["tile"]).kind == "sweep" and tile.rows < rows
    ]
    assert [str(point["tile"]) for point in shared][: len(tiles)] == tiles
    if tiles:
        assert points[0] == shared[0]
        assert bool(nest_at(space, points[0]).fetches) == (True in space.values("prefetch"))


@pytest.mark.parametrize(("text", "streams"), [
    ("matmul:m=128,n=4096,k=4096,dtype=bf16,weights=constant", True),
    ("matmul:m=64,n=1024,k=4096,dtype=i8,weights=constant", True),
    ("matmul:m=128,n=4096,k=4096,dtype=bf16", False),
    ("matmul:m=384,n=1024,k=4096,dtype=bf16,weights=constant", False),
])  # fmt: skip
def test_matrix_tiles_of_few_rows_begin_with_streamed_packed_weights(text, streams) -> None:
    first, *_ = matrix_points(Space(parse_problem(text), AMX))
    assert first["tile"].kind == "matrix"
    assert (first["outer"] == "cols", bool(first.get("prefetch"))) == (streams, streams)
    assert first["pack_a"] != streams  # a strip of A stays in L1


DEEP = "conv2d:n=1,h=28,w=28,ci=128,co=128,kh=3,kw=3,pad=1,dtype=f32"
FIRST = "conv2d:n=1,h=112,w=112,ci=3,co=32,kh=3,kw=3,pad=1,dtype=f32"


def output_of(point: Point) -> int | None:
    """Outputs of the tiles of a point; None for the direct method."""
    return algorithm_of(point).get("winograd")


def test_the_first_trial_filters_and_the_second_does_not() -> None:
    outputs = [output_of(point) for point in prior_points(model(DEEP), 10)]
    assert outputs[:4] == [4, None, 4, 4]
    assert outputs[5] is None and len(outputs) == 10


@pytest.mark.parametrize("text", [FIRST, f"{DEEP},accuracy=strict"])
def test_where_it_does_not_pay_the_prior_is_direct(text: str) -> None:
    assert {output_of(point) for point in prior_points(model(text), 10)} == {None}


@pytest.mark.parametrize(("text", "saved"), [
    ("kh=5,kw=5,pad=2", {2: 100 / 36, 3: 225 * (28 / 30) ** 2 / 49}),
    ("kh=1,kw=3", {4: 2.0, 6: 2.25 * 26 / 30}),
])  # fmt: skip
def test_products_are_those_of_the_form(text: str, saved: dict[int, float]) -> None:
    """Less what the last tile of a line has too much."""
    problem = parse_problem(f"conv2d:n=1,h=28,w=28,ci=128,co=128,{text},dtype=f32")
    space = Space(problem, WIDE)
    point = {p.name: p.values[0] for p in space.parameters}
    point |= {"tile": TilePoint(7, 2), "cols": 0, "tiles": 0, "depth": 0}
    adds = {
        output_of({ALGORITHM: name}): amounts(space, point | {ALGORITHM: name})["multiply_adds"]
        for name in space.values(ALGORITHM)
    }
    for output, times in saved.items():
        assert adds[None] / adds[output] == pytest.approx(times, rel=0.1), output


def test_the_first_trial_of_small_images_has_tall_tiles_and_fetches() -> None:
    found = model("conv2d:n=1,h=7,w=7,ci=512,co=512,kh=3,kw=3,pad=1,dtype=f32,weights=constant")
    first = prior_points(found, 1)[0]
    nest = nest_at(found.space, first)
    assert output_of(first) == 2 and nest.tile.rows == 8 and nest.fetches


LARGE = "matmul:m=512,n=4096,k=4096,dtype=f32,weights=constant"


def test_large_products_begin_with_it_and_the_direct_method_is_second() -> None:
    found = [[*algorithm_of(point)] for point in prior_points(model(LARGE), 6)]
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
