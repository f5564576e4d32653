from dataclasses import replace
from math import gcd
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.strategies import problems
from tests.search.targets import FAR, NARROW, SQUARE, WIDE
from tilewise.kernels.native.plan import plan
from tilewise.kernels.nest import LoopKind, count
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Prefetch, Stream, Tile, loop_nest
from tilewise.kernels.target import cores
from tilewise.search.model.analytical import AnalyticalModel, amounts
from tilewise.search.model.initial_candidates import fetched_points, rows_in_l2
from tilewise.search.model.prior import prior_points
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW, WIDE.with_threads(6)]), st.integers(0, 2**31))
def test_one_schedule_has_one_modelled_time(problem, target, seed) -> None:
    space, random = Space(problem, target), Random(seed)
    for point in [
        *(space.draw(random) for _ in range(3)),
        *prior_points(AnalyticalModel.shipped(space), 1),
    ]:
        schedule, time = space.schedule(point), AnalyticalModel.shipped(space).log_time(point)
        for other in space.neighbours(point):
            if space.schedule(other) == schedule:
                assert AnalyticalModel.shipped(space).log_time(other) == pytest.approx(time)


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


def test_the_model_prefers_what_uses_the_registers() -> None:
    space = Space(SQUARE, WIDE)
    point = {p.name: p.values[-1] for p in space.parameters} | {"outer": "cols", "unroll": 2}
    few, many = (
        AnalyticalModel.shipped(space).log_time(point | {"tile": TilePoint(8, vectors)})
        for vectors in (1, 3)
    )
    assert many < few


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


def test_the_model_knows_what_is_fetched_in_place_and_what_stays_outside() -> None:
    space = Space(parse_problem("matmul:m=400,n=800,k=2500,dtype=f32"), FAR)
    model, point = AnalyticalModel.shipped(space), next(fetched_points(space))
    assert model.log_time(point) < model.log_time(point | {"prefetch": False})
    assert model.log_time(point) < model.log_time(point | {"chunks": "inner"})


PROBLEMS = (
    "matmul:m=35,n=700,k=2048,dtype=f32",
    "matmul:m=28,n=1024,k=2048,dtype=f32,weights=constant",
    "matmul:m=1024,n=1024,k=1024,dtype=f32",
    "conv2d:n=1,h=7,w=7,ci=512,co=512,kh=3,kw=3,pad=1,dtype=f32,weights=constant",
    "conv2d:n=1,h=56,w=56,ci=128,co=128,kh=3,kw=3,pad=1,dtype=f32",
)


def decided(text: str, cpu: str) -> tuple[object, ...]:
    """The space of a problem, its first points, their times, and what kernels fetch ahead."""
    space = Space(parse_problem(text), replace(FAR, cpu=cpu))
    model = AnalyticalModel.shipped(space)
    points = prior_points(model, 6)
    schedules = [space.schedule(point) for point in points]
    specs = [plan(space.problem, schedule, space.target).kernel.spec for schedule in schedules]
    return space.parameters, points, [model.log_time(point) for point in points], specs


@pytest.mark.parametrize("text", PROBLEMS)
def test_facts_decide(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    far, near = cores.core_of("emeraldrapids")[0], cores.core_of("skylake-avx512")[0]
    assert decided(text, "emeraldrapids") != decided(text, "skylake-avx512")
    known = replace(near, transforms=far.transforms, far_l3=far.far_l3, broadcasts=far.broadcasts)
    monkeypatch.setitem(cores._CORES, "skylake-avx512", known)
    assert decided(text, "skylake-avx512") == decided(text, "emeraldrapids")
