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
        ([ROWS], "level, then one pipeline; not level"),
        ([PIPELINE, ROWS], "not pipeline, level"),
        ([PIPELINE, PIPELINE], "not pipeline, pipeline"),
        ([ROWS, Unroll(4).to_json(), PIPELINE], "not level, unroll, pipeline"),
        ([ROWS, "k", PIPELINE], "not level, None, pipeline"),
        ([ROWS | {"parts": 2}, PIPELINE], r"tiles\[0\] has the fields .*'parts'"),
        ([ROWS | {"at": "l2"}, PIPELINE], "at is 'l2', not one of distribution, "),
        ([ROWS | {"at": ["l2"]}, PIPELINE], "not one of distribution, "),
        ([ROWS, ROWS | {"dim": 3}, PIPELINE], r"tiles\[1\].dim is 3, not of type str"),
        ([ROWS | {"size": True}, PIPELINE], "size is True, not of type int"),
        ([PIPELINE | {"passes": "CPUDefault"}], "passes is 'CPUDefault', not one of Double"),
        ([ROWS, PIPELINE | {"tiles": 2}], "tiles is 2, not of type list"),
    ],
)
def test_what_is_none_says_which_field(steps: list[Any], said: str) -> None:
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
