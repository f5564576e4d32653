"""Configurations as they are stored: the same JSON, hash and text in every version."""

import json
from typing import Any

import pytest

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.mlir.tuning_spec.config import Configuration, TileSize, read_steps
from tilewise.kernels.schedule import Register, Schedule, Unroll

PIPELINE = {"step": "pipeline", "passes": "DoubleTilingExpert", "remainders": "peeled"}
ROWS = {"step": "level", "at": "distribution", "dim": "m", "size": 64}
STEPS = [ROWS, {"step": "level", "at": "vector_reduction", "dim": "k", "size": 4}, PIPELINE]
TILES = (TileSize("distribution", "m", 64), TileSize("vector_reduction", "k", 4))
CONFIG = Configuration(TILES, "DoubleTilingExpert", "peeled")


def test_stored_steps_become_what_they_were() -> None:
    assert read_steps(STEPS) == CONFIG
    assert json.dumps(CONFIG.to_json()) == json.dumps(STEPS)
    assert CONFIG.hash == "b5a2ea35e0b1a999"  # by which it is stored
    schedule = Schedule((Register(4, 16), Unroll(2)))
    assert read_steps(schedule.to_json()) == schedule


def test_each_step_is_a_line() -> None:
    assert str(CONFIG).splitlines() == [
        "level at=distribution dim=m size=64",
        "level at=vector_reduction dim=k size=4",
        "pipeline passes=DoubleTilingExpert remainders=peeled",
    ]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([ROWS], "one pipeline step, which is its last step"),
        ([PIPELINE, ROWS], "one pipeline step, which is its last step"),
        ([PIPELINE, PIPELINE], "one pipeline step, which is its last step"),
        ([ROWS, Unroll(4).to_json(), PIPELINE], "'unroll', .* no step of a tuning spec"),
        ([ROWS | {"parts": 2}, PIPELINE], r"level has the fields \['at', 'dim', 'size'\]"),
        ([ROWS | {"at": "l2"}, PIPELINE], "at is one of .*'distribution'"),
        ([ROWS | {"at": ["l2"]}, PIPELINE], "at is one of .*'distribution'"),
        ([ROWS | {"dim": 3}, PIPELINE], "dim is a name"),
        ([ROWS | {"size": 0}, PIPELINE], "size is a whole number of at least 1"),
        ([ROWS | {"size": True}, PIPELINE], "size is a whole number of at least 1"),
        ([PIPELINE | {"passes": "CPUDefault"}], "passes is one of .*'DoubleTilingExpert'"),
    ],
)
def test_what_is_none_says_which_step_and_field(steps: list[Any], said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        read_steps(steps)


@pytest.mark.parametrize("steps", [[], "level", Schedule((Register(4, 16),)).to_json()])
def test_no_configuration_is_made_of_other_values(steps: object) -> None:
    with pytest.raises(ScheduleError):
        Configuration.from_json(steps)


def test_a_schedule_has_no_level() -> None:
    with pytest.raises(
        ScheduleError, match=r"'level', .* no step of a schedule for a target cpu:NAME"
    ):
        Schedule.from_json(STEPS)
