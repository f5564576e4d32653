"""Variants of a range: which serves a size, and their JSON form."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.kernels.errors import ProblemError, ScheduleError
from tilewise.kernels.problem import parse_range
from tilewise.kernels.range_schedule import RangeSchedule, Span
from tilewise.kernels.schedule import Pack, Register, Schedule

PROBLEMS = parse_range("matmul:m=2..12:2,n=32,k=8,dtype=f32")
ONE, OTHER = Schedule((Register(4, 16),)), Schedule((Pack("B"), Register(2, 32)))
BOTH = RangeSchedule(PROBLEMS, (ONE, OTHER), (0, 0, 1, 1, 1, 0))


def test_each_size_has_its_variant() -> None:
    assert [BOTH.at(size) for size in PROBLEMS.sizes] == [ONE, ONE, OTHER, OTHER, OTHER, ONE]
    assert BOTH.sizes_of(0) == ((2,), (4,), (12,)) and BOTH.sizes_of(1) == ((6,), (8,), (10,))
    assert BOTH.spans == (Span((2,), (4,), 0), Span((6,), (10,), 1), Span((12,), (12,), 0))
    with pytest.raises(ProblemError, match="m=3 is not in"):
        BOTH.at((3,))
    BOTH.check_legal()


def test_json_gives_the_same_and_another_choice_another_hash() -> None:
    assert BOTH.to_json()["spans"] == [[2, 4, 0], [6, 10, 1], [12, 12, 0]]
    assert RangeSchedule.from_json(PROBLEMS, BOTH.to_json()) == BOTH
    assert replace(BOTH, choice=(0, 1, 1, 1, 1, 0)).hash != BOTH.hash


@given(st.lists(st.integers(0, 1), min_size=18, max_size=18).filter(lambda one: len({*one}) == 2))
def test_spans_of_two_dims_are_rectangles_that_hold_each_size_once(choice: list[int]) -> None:
    problems = parse_range("matmul:batch=1..3,m=2..12:2,n=32,k=8,dtype=f32")
    schedule = RangeSchedule(problems, (ONE, OTHER), tuple(choice))
    assert RangeSchedule.from_json(problems, schedule.to_json()) == schedule
    held: list[Any] = []
    for span in schedule.spans:
        (b, m), (last_b, last_m) = span.first, span.last
        own = list(product(range(b, last_b + 1), range(m, last_m + 1, 2)))
        assert {schedule.choice[problems.sizes.index(size)] for size in own} == {span.variant}
        held += own
    assert sorted(held) == list(problems.sizes)
    alone = replace(schedule, variants=(ONE,), choice=(0,) * 18)
    assert alone.to_json()["spans"] == [[(1, 2), (3, 12), 0]]


@pytest.mark.parametrize(
    "spans", [[[2, 6, 0], [6, 12, 1]], [[2, 4, 0], [8, 12, 1]], [[2, [4, 4], 0]], []]
)
def test_spans_hold_each_size_once(spans: list[list[int]]) -> None:
    with pytest.raises(ScheduleError, match="each size once"):
        RangeSchedule.from_json(PROBLEMS, BOTH.to_json() | {"spans": spans})


@pytest.mark.parametrize("choice", [(0, 0, 0, 0, 0, 0), (0, 1, 2, 1, 1, 0), (0, 1)])
def test_each_variant_serves_a_size(choice: tuple[int, ...]) -> None:
    with pytest.raises(ScheduleError, match=r"each variant serves a size|choices for 6 sizes"):
        replace(BOTH, choice=choice)
