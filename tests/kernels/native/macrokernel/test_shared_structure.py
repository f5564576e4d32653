"""Loops of one trip: the same nest to whoever counts, and one driver for more schedules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.strategies import problems, schedules
from tilewise.kernels.native.macrokernel import shared_structure as module
from tilewise.kernels.native.macrokernel.shared_structure import LEAST_WORK, uniform
from tilewise.kernels.native.plan import plan
from tilewise.kernels.nest import Nest, count, nest_of, printed
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Step,
    Stream,
    Tile,
    loop_nest,
)
from tilewise.kernels.target import Target

LARGE = parse_problem("matmul:m=200,n=300,k=100,dtype=f32")
TILE = Register(6, 64)


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems of any size have loops of one trip."""
    monkeypatch.setattr(module, "LEAST_WORK", 0)


@cases(200, short=60)
@given(st.data())
def test_nothing_happens_more_or_less_often(
    host: Target, any_size: None, data: st.DataObject
) -> None:
    problem = data.draw(problems)
    nest = loop_nest(problem, data.draw(schedules(problem, host)))
    with_more = uniform(nest)
    assert count(with_more) == count(nest)
    assert uniform(with_more) == with_more
    written, before = lines(with_more), lines(nest)
    assert [line for line in written if line in before] == before
    assert all(", 1 trips" in line for line in written if line not in before)


def lines(nest: Nest) -> list[str]:
    """The nodes as text, without what is around them; a prefetch of panels has no place."""
    written = [line.strip() for line in printed(nest)]
    return [line for line in written if not line.startswith("prefetch")]


def test_the_loops_that_are_left_out_come_where_a_search_has_them() -> None:
    nest = loop_nest(LARGE, Schedule((Tile("n", 128), Pack("B"), Pack("A"), TILE)))
    assert "\n".join(printed(uniform(nest))) == (
        "for n step 128:  # tile, 3 trips\n"
        "  for k step 100:  # k-block, 1 trips\n"
        "    pack B to panels 2x1x100x64\n"
        "    for m step 200:  # tile, 1 trips\n"
        "      pack A to rows 200x100\n"
        "      for n step 64:  # micro, 2 trips\n"
        "        for m step 6:  # micro, 34 trips\n"
        "          C += A * B  # 6x64 over 100\n"
        "          store C"
    )


def test_of_an_image_the_lines_are_blocked() -> None:
    problem = parse_problem("conv2d:n=2,h=34,w=34,ci=64,co=64,kh=3,kw=3,groups=2,dtype=f32")
    steps = (Tile("g", 1), Pack("B"), Tile("n", 1), Register(4, 32))
    nest = uniform(loop_nest(problem, Schedule(steps)))
    loops = [(loop.dim, loop.kind.value) for loop in nest.loops]
    assert loops[:5] == [
        ("g", "tile"), ("co", "tile"), ("ci", "k-block"), ("n", "tile"), ("oh", "tile"),
    ]  # fmt: skip


def test_parallel_loops_stay_outside() -> None:
    nest = uniform(loop_nest(LARGE, Schedule((Parallel("m", 2), TILE))))
    assert [loop.kind.value for loop in nest.loops[:4]] == ["parallel", "tile", "k-block", "tile"]


@pytest.mark.parametrize(
    "steps",
    [
        (Tile("m", 60), Tile("n", 128), TILE),  # rows outside
        (Tile("m", 60), Pack("B"), TILE),
        (Pack("A"), Pack("B"), TILE),
        (Tile("n", 256), Tile("n", 128), TILE),
    ],
)
def test_another_order_stays_as_it_is(steps: tuple[Step, ...]) -> None:
    nest = loop_nest(LARGE, Schedule(steps))
    assert uniform(nest) == nest


@pytest.mark.parametrize(
    ("text", "is_enough"),
    [
        ("matmul:m=128,n=128,k=64,dtype=f32", True),
        ("matmul:m=128,n=128,k=63,dtype=f32", False),
        ("matmul:batch=9,m=64,n=64,k=64,dtype=f32", False),  # each of them is small
        ("conv2d:n=9,h=10,w=10,ci=32,co=32,kh=3,kw=3,dtype=f32", False),  # each image
        ("conv2d:n=1,h=34,w=34,ci=32,co=32,kh=3,kw=3,dtype=f32", True),
    ],
)
def test_a_small_problem_has_no_loop_too_many(text: str, is_enough: bool) -> None:
    problem = parse_problem(text)
    steps: list[Step] = [Tile(dim.name, 1) for dim in nest_of(problem).dims if dim.single]
    nest = loop_nest(problem, Schedule((*steps, TILE)))
    assert (uniform(nest) != nest) == is_enough
    assert LEAST_WORK == 128 * 128 * 64


def source(host: Target, *steps: Step, shares: bool = True) -> str:
    return plan(LARGE, Schedule((*steps, TILE)), host, shares_driver=shares).source.text


def test_schedules_that_differ_in_blocks_share_a_driver(host: Target) -> None:
    blocked = source(host, Tile("n", 128), Stream("k", 50), Pack("B"), Tile("m", 60))
    assert blocked == source(host, Pack("B")) == source(host, Stream("k", 20), Pack("B"))
    assert blocked != source(host)
    assert blocked != source(host, Pack("B"), shares=False), "what users export has no such loop"


def test_one_that_prefetches_looks_at_the_loops_that_there_are(host: Target) -> None:
    steps = (Tile("n", 128), Pack("B"), Prefetch("B"))
    assert source(host, *steps) == source(host, *steps, shares=False)
