"""Steps made of the choices of a search."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.kernels.errors import ProblemError, ScheduleError
from tilewise.kernels.nest import Nest
from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.kernels.range_schedule import RangeSchedule, Span
from tilewise.kernels.schedule import Pack, Register, Schedule, check_legal, chosen
from tilewise.kernels.steps import Part, Step, registered

PROBLEM = parse_problem("matmul:batch=2,m=60,n=100,k=64,dtype=f32")
TILE = {"register": (6, 32, "cols")}


def text_of(choices: dict[str, Any], problem=PROBLEM) -> str:
    schedule = Schedule(tuple(chosen(problem, choices).steps))
    check_legal(problem, schedule)
    return str(schedule)


@pytest.mark.parametrize(
    ("choices", "steps"),
    [
        ({}, ["tile dim=batch size=1"]),
        ({"parallel": "n=8"}, ["parallel dim=n parts=4", "tile dim=batch size=1"]),
        ({"cols": 40, "rows": 0}, ["tile dim=batch size=1", "tile dim=n size=32"]),
        (
            {"depth": 16, "pack_b": True, "prefetch": True},
            ["tile dim=batch size=1", "stream dim=k depth=16", "pack operand=B",
             "prefetch operand=B"],
        ),
        ({"pack_b": True, "prefetch": True}, ["tile dim=batch size=1", "pack operand=B"]),
    ],
)  # fmt: skip
def test_choices_make_steps_where_they_have_an_effect(choices, steps) -> None:
    division = {"parallel": choices.pop("parallel", "none")}
    found = text_of({**division, "lead": True, **choices, **TILE, "unroll": 1, "lanes": 0})
    assert found.splitlines() == [*steps, "register rows=6 cols=32 outer=cols"]


def test_a_part_is_what_is_left_to_a_thread() -> None:
    part = chosen(PROBLEM, {"parallel": "m=2,n=2", **TILE})
    assert (part.extents["m"], part.extents["n"]) == (30, 64)


def test_a_step_of_an_extension_is_made_of_choices_of_its_own() -> None:
    @dataclass(frozen=True)
    class Marked(Step):
        name: ClassVar[str] = "marked"
        choices: ClassVar[tuple[str, ...]] = ("mark",)
        size: int

        @classmethod
        def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
            return [cls(value)] if value else []

        def check(self, nest: Nest) -> None: ...

        def apply(self, nest: Nest) -> Nest:
            return nest

    with registered(Marked):
        assert "marked size=3" in text_of({"lead": True, "mark": 3, **TILE})
        assert "marked" not in text_of({"lead": True, "mark": 0, **TILE})
    with pytest.raises(KeyError):
        chosen(PROBLEM, {"mark": 3})
    Marked.choices = ("unroll",)
    with pytest.raises(ValueError, match="'unroll' makes the step Unroll"), registered(Marked):
        pass


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
