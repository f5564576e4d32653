import csv
import io
import json
from dataclasses import asdict
from typing import Any, get_args

import jsonschema
import pytest

from tests.tilewise.formats.t4_schema import INVALIDITY, SCHEMA
from tilewise.formats import t4, trials
from tilewise.search.records import FailureClass
from tilewise.search.space.points import TilePoint
from tilewise.service.api.schemas import StoredTrialView

Json = dict[str, Any]
PROBLEM = "matmul:m=64,n=48,k=32,dtype=f32"


def trial(number: int = 0, **parts: Any) -> Json:
    """A trial as the service shows it."""
    tile = TilePoint(number + 1, 2)
    params = {"tile": str(tile), "depth": (0, 256, 96)[number % 3], "pack_a": number > 2}
    made = {
        "job": 1, "problem": PROBLEM, "target": "cpu:znver4,threads=1", "toolchain": "numba 0.68.1",
        "number": number, "hash": f"{number:016x}", "steps": [{"step": "unroll", "factor": 2}],
        "params": params, "tile": {**asdict(tile), "description": tile.description},
        "state": "timed", "origin": "tpe", "failure": None, "message": "",
        "gflops": 100.0 + number, "interval": [99.0, 101.0 + number], "time_us": 1500.0 - number,
        "samples_us": [1500.0 - number, 1490.0, 1510.5], "rejected": 2, "pace": 1.0,
        "samples_taken": None,
        "compile_s": 0.25, "max_error": 0.125, "cache": "hot",
        "created": f"2026-11-20T18:25:{number:02}.118309+00:00",
    }  # fmt: skip
    return made | parts


def failed(number: int, kind: str) -> Json:
    nothing = dict.fromkeys(("gflops", "interval", "time_us", "max_error"))
    given = {"state": "failed", "failure": kind, "samples_us": [], "compile_s": 0.0, "rejected": 0}
    return trial(number, **nothing, **given, message=f"{kind} of it")


def test_these_trials_are_as_the_service_shows_them() -> None:
    for made in (trial(), failed(1, "crash")):
        StoredTrialView.model_validate(made, strict=False)
        assert made.keys() == StoredTrialView.model_fields.keys()


def test_a_timed_trial_in_t4_has_milliseconds() -> None:
    result = t4.results([trial(3)])["results"][0]
    assert result["times"]["compilation_time"] == 250.0
    assert result["times"]["runtimes"] == pytest.approx([1.497, 1.49, 1.5105])
    assert (result["invalidity"], result["correctness"]) == ("correct", 1)
    assert result["objectives"] == ["time"]
    assert result["configuration"] == trial(3)["params"]
    measured = {one["name"]: (one["value"], one["unit"]) for one in result["measurements"]}
    assert measured == {
        "time": (1.497, "ms"),
        "speed": (103.0, "GFLOP/s"),
        "speed_low": (99.0, "GFLOP/s"),
        "speed_high": (104.0, "GFLOP/s"),
        "max_error": (0.125, ""),
        "rejected_samples": (2, ""),
        "pace": (1.0, ""),
    }


@pytest.mark.parametrize("kind", get_args(FailureClass))
def test_every_class_of_failure_has_its_invalidity(kind: str) -> None:
    document = t4.results([failed(0, kind)])
    jsonschema.validate(document, SCHEMA)
    result = document["results"][0]
    assert result["invalidity"] in INVALIDITY and result["invalidity"] != "correct"
    assert (result["correctness"], result["times"]["runtimes"]) == (0, [])
    assert result["measurements"] == []


def test_t4_as_it_is_printed() -> None:
    rows = [trial(0), trial(1, state="pruned", samples_us=[1.0, 2.0]), failed(2, "wrong")]
    printed = json.loads(trials.trials_text(rows, "t4"))
    jsonschema.validate(printed, SCHEMA)
    assert [r["invalidity"] for r in printed["results"]] == ["correct", "correct", "correctness"]
    assert printed["metadata"]["problems"] == [PROBLEM]


def test_csv_has_a_column_for_each_parameter() -> None:
    rows = [trial(0), trial(1) | {"params": {"depth": 96, "prefetch": True}}, failed(2, "crash")]
    read = list(csv.DictReader(io.StringIO(trials.trials_text(rows, "csv"))))
    assert [row["param_tile"] for row in read] == ["1x2", "", "3x2"]
    assert [row["param_prefetch"] for row in read] == ["", "True", ""]
    assert read[0]["gflops"] == "100.0" and read[0]["problem"] == PROBLEM
    assert (read[2]["failure"], read[2]["message"]) == ("crash", "crash of it")
