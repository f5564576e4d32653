from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.loopnest import build, count
from kernels.problem import parse_problem
from kernels.schedule import (
    Pack,
    Parallel,
    Register,
    Schedule,
    Stream,
    Tile,
    check_legal,
)
from kernels.target import Target
from search.model.analytical import Model, amounts
from search.model.prior import prior_points
from search.samplers.registry import GridWalk
from search.space.block_sizes import balanced_chunk, equal_block
from search.space.cache_limits import why_too_large
from search.space.parameters import step_aside
from search.space.space import Space
from search.space.tiles import SplitTile, register_tiles, split_tiles, tile_shape
from tests.kernels.strategies import problems

WIDE = Target("big", vector_bytes=64, vector_registers=32, l1_bytes=48 << 10, l2_bytes=1 << 20,
              l3_bytes=32 << 20)  # fmt: skip
NARROW = Target("small", vector_bytes=16, vector_registers=16)
SQUARE = parse_problem("matmul:m=1024,n=1024,k=1024,dtype=f32")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW, WIDE.with_threads(6)]), st.integers(0, 2**31))
def test_every_point_of_every_space_is_a_legal_schedule(problem, target, seed) -> None:
    space = Space(problem, target)
    random = Random(seed)
    for _ in range(5):
        point = {p.name: random.choice(p.values) for p in space.parameters}
        check_legal(problem, space.schedule(point))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW, WIDE.with_threads(6)]), st.integers(0, 2**31))
def test_one_schedule_has_one_modelled_time(problem, target, seed) -> None:
    space, random = Space(problem, target), Random(seed)
    for point in [*(space.draw(random) for _ in range(3)), *prior_points(Model.shipped(space), 1)]:
        schedule, time = space.schedule(point), Model.shipped(space).log_time(point)
        for other in space.neighbours(point):
            if space.schedule(other) == schedule:
                assert Model.shipped(space).log_time(other) == pytest.approx(time)


def test_a_prefetch_of_no_other_block_costs_what_none_does() -> None:
    space = Space(SQUARE, WIDE)
    model = Model.shipped(space)
    whole = {p.name: p.values[0] for p in space.parameters} | {"pack_b": True, "depth": 0}
    for cols, alike in ((0, True), (64, False)):
        with_it, without = (whole | {"cols": cols, "prefetch": choice} for choice in (True, False))
        assert (space.schedule(with_it) == space.schedule(without)) == alike
        assert (model.log_time(with_it) == model.log_time(without)) == alike


def test_the_model_knows_what_a_dilated_filter_packs_of_an_image() -> None:
    modelled, counted = [], []
    for dilation in (1, 3):  # padded to outputs as many
        text = f"n=1,h=56,w=56,ci=64,co=64,kh=3,kw=3,pad={dilation},dilation={dilation},dtype=f32"
        space = Space(parse_problem(f"conv2d:{text}"), WIDE)
        point = {p.name: p.values[0] for p in space.parameters}
        point |= {"pack_a": True, "cols": 0, "image_rows": 2}
        nest = build(space.problem, space.schedule(point))
        modelled.append(amounts(space, point)["packed_a"])
        counted.append(count(space.problem, nest).packed_bytes["A"])
    assert modelled[1] / modelled[0] == pytest.approx(counted[1] / counted[0], rel=0.1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW]))
def test_the_prior_proposes_different_points_of_the_space(problem, target) -> None:
    space = Space(problem, target)
    points = prior_points(Model.shipped(space), 16)
    assert points
    hashes = [space.schedule(p).hash for p in points]
    assert len(set(hashes)) == len(hashes)
    for point in points:
        assert all(point[p.name] in p.values for p in space.parameters)


@settings(deadline=None)
@given(st.integers(1, 5000), st.sampled_from([0, 64, 100, 512, 6000]))
def test_chunks_are_balanced(extent: int, wanted: int) -> None:
    chunk = balanced_chunk(extent, wanted)
    chunks = -(-extent // chunk)
    assert chunk * chunks - extent < chunks
    assert 1 <= chunk <= extent


@settings(deadline=None)
@given(st.integers(1, 5000), st.sampled_from([0, 16, 200, 512]), st.integers(1, 80))
def test_blocks_are_equal_counted_in_panels(extent: int, wanted: int, unit: int) -> None:
    block = equal_block(extent, wanted, unit)
    assert block % unit == 0
    assert -(-extent // unit) % (block // unit) == 0


def test_register_tiles_fit_the_registers() -> None:
    for target in (WIDE, NARROW):
        space = Space(SQUARE, target)
        assert register_tiles(space.workload)
        for rows, vectors in register_tiles(space.workload):
            assert rows * vectors + vectors + 1 <= target.vector_registers
    first = prior_points(Model.shipped(Space(SQUARE, WIDE)), 1)[0]
    rows, vectors, _ = tile_shape(first["tile"])
    assert rows * vectors >= 20  # the registers are there to be used


def test_size_counts_the_points() -> None:
    space = Space(parse_problem("matmul:m=2,n=20,k=3,dtype=f32"), WIDE)
    seen = {tuple(sorted(_point(space, i).items())) for i in range(space.size)}
    assert len(seen) == space.size


def _point(space: Space, index: int) -> dict[str, object]:
    point = {}
    for p in space.parameters:
        index, digit = divmod(index, len(p.values))
        point[p.name] = p.values[digit]
    return point


def test_the_grid_walk_visits_every_point_once() -> None:
    space = Space(parse_problem("matmul:m=2,n=20,k=70,dtype=f32"), WIDE)
    walks = [GridWalk(space, seed) for seed in (3, 4)]
    points = [[tuple(walk.propose().items()) for _ in range(space.size)] for walk in walks]
    assert [len(set(walked)) for walked in points] == [space.size] * 2
    assert points[0][0] != points[1][0], "the seed says where it begins"


def test_scratch_beyond_the_last_cache_is_turned_away() -> None:
    space = Space(parse_problem("matmul:m=64,n=20000,k=20000,dtype=f64"), NARROW)
    point = {p.name: p.values[-1] for p in space.parameters} | {"cols": 0, "depth": 0}
    reason = space.why_illegal(space.schedule(point | {"pack_b": True}))
    assert reason is not None
    assert "MiB" in reason


@pytest.mark.parametrize(("weights", "says"), [("variable", "packed block of B"), ("constant", "")])
def test_weights_that_are_packed_once_for_all_need_no_cache(weights: str, says: str) -> None:
    problem = parse_problem(f"matmul:m=64,n=20000,k=20000,dtype=f64,weights={weights}")
    schedule = Schedule((Stream("k", 300), Pack("B"), Tile("m", 8), Pack("A"), Register(4, 8)))
    small = replace(WIDE, l3_bytes=1 << 20)
    found = why_too_large(problem, replace(small, l2_bytes=1 << 30), schedule)
    assert (found is None) == (not says)
    assert found is None or (says in found and "45 MiB" in found)


@pytest.mark.parametrize(
    ("depth", "rows", "turned_away"), [(128, 8, False), (129, 8, True), (129, 100, False)]
)
def test_a_panel_beyond_the_second_cache_is_turned_away_where_streaming_would_help(
    depth: int, rows: int, turned_away: bool
) -> None:
    """A reduction that is cut short already is not cut shorter; one tile of rows reads once."""
    problem = parse_problem(f"conv2d:n=1,h=9,w=100,ci={depth},co=48,kh=5,kw=5,dtype=f32")
    schedule = Schedule((Pack("B"), Tile("n", 1), Register(rows, 48)))
    found = why_too_large(problem, replace(WIDE, l2_bytes=64 << 10), schedule)
    assert (found is not None) == turned_away
    assert found is None or "a panel of B takes 604 KiB" in found


@pytest.mark.parametrize("seed", range(20))
def test_a_step_aside_changes_one_parameter_to_a_neighbour(seed: int) -> None:
    space = Space(SQUARE, WIDE)
    point = prior_points(Model.shipped(space), 1)[0]
    moved = step_aside(space.parameters, point, Random(seed))
    (name,) = [n for n in point if point[n] != moved[n]]
    assert moved[name] in space.parameter(name).neighbours(point[name])


NARROW_RESULTS = [
    "matmul:m=3072,n=1,k=1024,dtype=f32",
    "matmul:m=2048,n=4,k=512,dtype=i8",
    "matmul:m=1,n=4096,k=4096,dtype=f32,transpose_b",
    "matmul:batch=3,m=4,n=77,k=63,dtype=bf16,transpose_b",
    "matmul:m=1,n=1,k=1,dtype=f64",
]


LARGE = parse_problem("matmul:m=128,n=3072,k=768,dtype=f32")


@pytest.mark.parametrize(
    ("text", "is_offered"),
    [
        ("matmul:m=128,n=3072,k=768,dtype=f32", True),
        ("matmul:m=128,n=64,k=768,dtype=f32", False),
        ("matmul:m=128,n=3072,k=768,dtype=f32,transpose_b", False),
        ("matmul:m=128,n=3072,k=768,dtype=f32,weights=constant", False),
        ("conv2d:n=1,h=7,w=7,ci=512,co=512,kh=3,kw=3,pad=1,dtype=f32", True),
        ("conv2d:n=1,h=99,w=99,ci=512,co=9,kh=3,kw=3,layout=nchw_fchw,dtype=f32", False),
    ],
)
def test_a_large_b_that_is_packed_row_by_row_can_be_prefetched(text: str, is_offered: bool) -> None:
    space = Space(parse_problem(text), WIDE)
    assert any(p.name == "prefetch" for p in space.parameters) == is_offered
    tiled = prior_points(Model.shipped(space), 1)[0] | {"cols": 64, "depth": 128, "pack_b": True}
    if is_offered:
        assert space.schedule(tiled | {"prefetch": True}).prefetches


def test_the_result_is_divided_among_the_threads() -> None:
    space = Space(LARGE, WIDE.with_threads(6))
    (parameter,) = (p for p in space.parameters if p.name == "parallel")
    assert parameter.values == ("none", "m=6", "n=6", "m=2,n=3", "m=3,n=2")
    point = prior_points(Model.shipped(space), 1)[0]
    assert space.schedule(point).steps[0] == Parallel("n", 6)
    both = space.schedule(point | {"parallel": "m=2,n=3"})
    assert both.steps[:2] == (Parallel("m", 2), Parallel("n", 3))
    assert space.schedule(point | {"parallel": "none"}).threads == 1
    assert all(p.name != "parallel" for p in Space(LARGE, WIDE).parameters)


def test_a_dim_has_no_more_parts_than_register_tiles() -> None:
    space = Space(parse_problem("matmul:m=5,n=40,k=9,dtype=f32"), WIDE.with_threads(6))
    for point in prior_points(Model.shipped(space), 20):
        check_legal(space.problem, space.schedule(point | {"parallel": "n=6"}))


def splits(schedule: Schedule) -> bool:
    return schedule.lanes > 1


@pytest.mark.parametrize("text", NARROW_RESULTS)
@pytest.mark.parametrize("target", [WIDE, NARROW])
def test_narrow_results_are_offered_splits_of_the_reduction(text: str, target: Target) -> None:
    problem = parse_problem(text)
    space = Space(problem, target)
    if not split_tiles(space.workload):
        assert target is NARROW  # four columns fill its vectors
        return
    first = [splits(space.schedule(p)) for p in prior_points(Model.shipped(space), 12)]
    assert first[0]
    if problem.m * problem.n > 1:
        assert not all(first)  # a script needs one that does not split
    for tile in split_tiles(space.workload):
        assert tile == SplitTile.parse(str(tile))
        assert tile.cols <= problem.n and tile.rows <= problem.m


def test_a_split_reads_in_place_what_it_can() -> None:
    space = Space(parse_problem("matmul:m=64,n=1,k=512,dtype=bf16"), WIDE)
    schedule = space.schedule(prior_points(Model.shipped(space), 1)[0])
    assert not schedule.packs("A") and not schedule.packs("B")
    space = Space(parse_problem("matmul:m=64,n=2,k=512,dtype=bf16"), WIDE)
    assert space.schedule(prior_points(Model.shipped(space), 1)[0]).packs("B")


@pytest.mark.parametrize(
    "text",
    [
        "matmul:m=1024,n=1024,k=1024,dtype=f32",
        "matmul:m=1,n=4096,k=4096,dtype=f32",
        "matmul:m=64,n=1,k=512,dtype=f32,transpose_a",
        "matmul:m=64,n=9,k=512,dtype=f32",
        "conv2d:n=1,h=9,w=9,ci=8,co=1,kh=3,kw=3,dtype=f32",
    ],
)
def test_no_split_is_offered_where_columns_fill_vectors(text: str) -> None:
    assert split_tiles(Space(parse_problem(text), WIDE).workload) == ()


def test_what_is_kept_about_points_is_what_they_mean(monkeypatch) -> None:
    monkeypatch.setattr("search.space.space.MAX_KEPT_HASHES", 8)
    poor = Target("poor", vector_bytes=16, vector_registers=16, l2_bytes=64 << 10)
    problem = parse_problem("matmul:m=4096,n=4096,k=4096,dtype=f32")
    space, random = Space(problem, poor), Random(2)
    points = [space.draw(random) for _ in range(40)]
    points += points
    schedules = [space.schedule(point) for point in points]
    illegal = [space.why_illegal(schedule) is not None for schedule in schedules]
    assert any(illegal) and not all(illegal)
    for point, schedule, is_illegal in zip(points, schedules, illegal, strict=True):
        assert space.legal_hash(point) == (None if is_illegal else schedule.hash)
