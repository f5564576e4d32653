"""Loops of one trip: the same nest to whoever counts, and one driver for more schedules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.strategies import problems, schedules
from tilewise.kernels.native.macrokernel import shared_structure as module
from tilewise.kernels.native.macrokernel.shared_structure import uniform
from tilewise.kernels.native.plan import plan
from tilewise.kernels.nest import Nest, count, printed
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import (
    Pack,
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
