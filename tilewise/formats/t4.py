"""Trials as T4, the auto-tuning community's results format, schema 1.0.0.

See "FAIR Sharing of Data in Autotuning Research" (Hozzova et al., ICPE Companion 2024, doi
10.1145/3629527.3651429) and `results-schema.json` of odgaard/TuningSchema. Times are in
milliseconds. Optional times that the store does not know are left out. The compile time is given
under the schema's name and under the one that Kernel Tuner writes.
"""

import math
from collections.abc import Sequence

from tilewise.schema.base import Json

SCHEMA_VERSION = "1.0.0"
OBJECTIVE = "time"
CORRECT = "correct"
# T4's classes are fewer: a candidate that died or ran out of memory failed at run time.
_INVALIDITY = {
    "constraint": "constraints",
    "compile": "compile",
    "timeout": "timeout",
    "crash": "runtime",
    "memory": "runtime",
    "runtime": "runtime",
    "wrong": "correctness",
}


def results(rows: Sequence[Json]) -> Json:
    """Return the document of all trials, given as `GET /v1/trials` returns them.

    Beyond the schema, `metadata` names problems, targets and toolchains, and each result its
    schedule.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "metadata": {
            name: sorted({row[key] for row in rows})
            for name, key in (("problems", "problem"), ("targets", "target"),
                              ("requirements", "toolchain"))
        },
        "results": [_result(row) for row in rows],
    }  # fmt: skip


def _result(row: Json) -> Json:
    """Return one trial; a pruned one is correct and has fewer runtimes."""
    invalidity = CORRECT if row["failure"] is None else _INVALIDITY[row["failure"]]
    return {
        "timestamp": row["created"],
        "configuration": row["params"],
        "objectives": [OBJECTIVE],
        "times": {
            "compilation_time": row["compile_s"] * 1e3,
            "compilation": row["compile_s"] * 1e3,
            "runtimes": [sample / 1e3 for sample in row["samples_us"]],
        },
        "invalidity": invalidity,
        # Whether the result was compared with the reference and was within its tolerance.
        "correctness": 1 if invalidity == CORRECT else 0,
        "measurements": _measurements(row),
        "schedule": {"hash": row["hash"], "steps": row["steps"]},
    }


def _measurements(row: Json) -> list[Json]:
    """Return each measured value with its unit."""
    low, high = row["interval"] or (None, None)
    time_us = row["time_us"]
    found = [
        (OBJECTIVE, None if time_us is None else time_us / 1e3, "ms"),
        ("speed", row["gflops"], "GFLOP/s"),
        ("speed_low", low, "GFLOP/s"),
        ("speed_high", high, "GFLOP/s"),
        ("pace", row.get("pace") if time_us is not None else None, ""),
        ("max_error", row["max_error"], ""),
        ("rejected_samples", row["rejected"] if time_us is not None else None, ""),
    ]
    return [
        {"name": name, "value": value, "unit": unit}
        for name, value, unit in found
        if value is not None and math.isfinite(value)
    ]
