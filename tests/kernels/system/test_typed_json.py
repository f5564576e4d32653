"""Dataclasses as JSON: what was said is what is read, and anything else is refused by name."""

import json
import re
from dataclasses import dataclass
from typing import Literal

import pytest

from tilewise.kernels.system.typed_json import from_json, to_json


@dataclass(frozen=True)
class Part:
    times: tuple[float, ...]
    name: str | None = None


@dataclass(frozen=True)
class Whole:
    part: Part
    parts: dict[str, Part]
    count: int
    is_right: bool
    state: Literal["timed", "failed"]
    speed: float


WHOLE = Whole(Part((1.0, 2.5), "a"), {"b": Part(())}, 3, True, "timed", 4.0)


def test_what_was_said_is_what_is_read() -> None:
    assert from_json(Whole, json.loads(json.dumps(to_json(WHOLE)))) == WHOLE
    whole = json.loads(json.dumps(to_json(WHOLE))) | {"speed": 4}
    assert from_json(Whole, whole) == WHOLE, "a whole number is a number"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 3.5}, "Whole.count is 3.5, not of type int"),
        ({"count": True}, "Whole.count is True, not of type int"),
        ({"is_right": 1}, "Whole.is_right is 1, not of type bool"),
        ({"speed": "fast"}, "Whole.speed is 'fast', not of type float"),
        ({"speed": None}, "Whole.speed is None, not of type float"),
        ({"state": "lost"}, "Whole.state is 'lost', not one of timed, failed"),
        ({"part": {"times": [1.0, "x"], "name": None}}, "Whole.part.times[1] is 'x'"),
        ({"parts": {"b": []}}, "Whole.parts.b is [], not of type dict"),
        ({"more": 1}, "Whole has the fields"),
    ],
)
def test_what_is_of_another_shape_is_refused_by_name(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        from_json(Whole, json.loads(json.dumps(to_json(WHOLE))) | change)


def test_a_missing_field_is_refused() -> None:
    said = to_json(WHOLE)
    del said["part"]
    with pytest.raises(ValueError, match="Whole has the fields"):
        from_json(Whole, said)
