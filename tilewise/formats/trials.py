"""Trials as a table, JSON, CSV or T4."""

import csv
import io
import json

from tilewise.formats import t4
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.mlir.tuning_spec.config import read_steps
from tilewise.schema.base import Json

FORMATS = ("table", "json", "csv", "t4")
TRIAL_COLUMNS = (
    "number", "state", "origin", "gflops", "gflops_low", "gflops_high", "time_us", "samples",
    "rejected", "compile_s", "max_error", "failure", "message", "hash", "schedule",
    "problem", "target", "toolchain", "job", "created", "pace",
)  # fmt: skip


def steps_text(steps: list[Json]) -> str:
    """Format a schedule's steps one per line; as JSON if this version does not know them."""
    try:
        return str(read_steps(steps))
    except ScheduleError:
        return json.dumps(steps)


def trials_text(rows: list[Json], kind: str) -> str:
    """Format trials as a table, JSON, CSV or T4 (`tilewise.formats.t4`)."""
    if kind == "json":
        return json.dumps(rows, indent=2) + "\n"
    if kind == "t4":
        return json.dumps(t4.results(rows), indent=2) + "\n"
    return _csv(rows) if kind == "csv" else _table([_flat(row) for row in rows])


def _csv(rows: list[Json]) -> str:
    """Return a line per trial, with a column for each parameter of any."""
    names = dict.fromkeys(f"param_{name}" for row in rows for name in row["params"])
    out = io.StringIO()
    writer = csv.DictWriter(out, [*TRIAL_COLUMNS, *names], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(_flat(row) | {f"param_{k}": v for k, v in row["params"].items()})
    return out.getvalue()


def _flat(row: Json) -> Json:
    low, high = row["interval"] or (None, None)
    made = {
        "schedule": "; ".join(steps_text(row["steps"]).splitlines()),
        "gflops_low": low,
        "gflops_high": high,
        "samples": len(row["samples_us"]),
    }
    return {name: row.get(name) for name in TRIAL_COLUMNS} | made


def _table(rows: list[Json]) -> str:
    lines = [f"{'trial':>5} {'state':<7} {'GFLOP/s':>8} {'us':>12} {'origin':<9} schedule"]
    for row in rows:
        speed = "" if row["gflops"] is None else f"{row['gflops']:.1f}"
        time_us = row["time_us"]
        took = "" if time_us is None else f"{time_us:.{1 if time_us >= 1 else 4}f}"
        what = f"[{row['failure']}] " if row["failure"] else ""
        lines.append(
            f"{row['number']:>5} {row['state']:<7} {speed:>8} {took:>12} {row['origin']:<9} "
            f"{what}{row['schedule']}"
        )
    return "\n".join(lines) + "\n"
