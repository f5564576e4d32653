"""Steps made of the choices of a search."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tilewise.kernels.nest import Nest
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule, check_legal, chosen
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
