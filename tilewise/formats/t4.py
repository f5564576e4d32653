"""Trials as T4, the auto-tuning community's results format, schema 1.0.0.

The format is of "FAIR Sharing of Data in Autotuning Research" (Hozzova et al., ICPE
Companion 2024, doi 10.1145/3629527.3651429); Kernel Tuner and KTT write it, and the schema is
`results-schema.json` of odgaard/TuningSchema. Times are in milliseconds, as theirs are.

What the store does not know is left out: the seconds of the search itself (`search_algorithm`),
of the harness (`framework`) and of the check (`validation`), all of which the schema lets be
absent. The compile time is there under the schema's name and under the one that Kernel
Tuner writes and the community's methodology reads.
"""

import math
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

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
    """The document of all trials.

    Args:
        rows: trials as `GET /v1/trials` gives them.

    Returns:
        A JSON object. Beside what the schema asks for, `metadata` says of which problem, targets
        and toolchains the trials are; each result has the schedule that the configuration means.
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
    """One trial; one that was pruned is correct, and has fewer runtimes."""
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
    """What was measured, each with its unit; nothing of a candidate that did not run."""
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
