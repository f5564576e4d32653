"""Variants of a range: which serves a size, and their JSON form."""

from dataclasses import replace

import pytest

from tilewise.kernels.errors import ProblemError, ScheduleError
from tilewise.kernels.problem import parse_range
from tilewise.kernels.range_schedule import RangeSchedule, Span
from tilewise.kernels.schedule import Pack, Register, Schedule

PROBLEMS = parse_range("matmul:m=2..12:2,n=32,k=8,dtype=f32")
ONE, OTHER = Schedule((Register(4, 16),)), Schedule((Pack("B"), Register(2, 32)))
BOTH = RangeSchedule(PROBLEMS, (ONE, OTHER), (0, 0, 1, 1, 1, 0))


def test_each_size_has_its_variant() -> None:
    assert [BOTH.at(size) for size in PROBLEMS.sizes] == [ONE, ONE, OTHER, OTHER, OTHER, ONE]
    assert BOTH.sizes_of(0) == (2, 4, 12) and BOTH.sizes_of(1) == (6, 8, 10)
    assert BOTH.spans == (Span(2, 4, 0), Span(6, 10, 1), Span(12, 12, 0))
    with pytest.raises(ProblemError, match="m=3 is not in"):
        BOTH.at(3)
    BOTH.check_legal()


def test_json_gives_the_same_and_another_choice_another_hash() -> None:
    assert RangeSchedule.from_json(PROBLEMS, BOTH.to_json()) == BOTH
    assert replace(BOTH, choice=(0, 1, 1, 1, 1, 0)).hash != BOTH.hash


@pytest.mark.parametrize(
    "spans", [[[2, 6, 0], [6, 12, 1]], [[2, 4, 0], [8, 12, 1]], [[6, 12, 1], [2, 4, 0]], []]
)
def test_spans_hold_each_size_once(spans: list[list[int]]) -> None:
    with pytest.raises(ScheduleError, match="each size once"):
        RangeSchedule.from_json(PROBLEMS, BOTH.to_json() | {"spans": spans})


@pytest.mark.parametrize("choice", [(0, 0, 0, 0, 0, 0), (0, 1, 2, 1, 1, 0), (0, 1)])
def test_each_variant_serves_a_size(choice: tuple[int, ...]) -> None:
    with pytest.raises(ScheduleError, match=r"each variant serves a size|choices for 6 sizes"):
        replace(BOTH, choice=choice)
