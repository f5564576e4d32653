"""Trials as rows, and the trials that transfer may use."""

import array
import logging
import sys
from math import inf
from typing import Any, TypeGuard

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.tuning_spec.config import read_steps
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import parse_target
from tilewise.search.records import Earlier, Measurement, TrialRecord
from tilewise.service.db import models
from tilewise.service.db.base import damage
from tilewise.service.faults import tell_once

log = logging.getLogger(__name__)


def is_above_0(value: object) -> TypeGuard[float]:
    """Return whether a value of the database is a finite number above 0."""
    return isinstance(value, float) and 0 < value < inf


def fault_of(trial: TrialRecord) -> str | None:
    """Return why a row cannot be a trial; None if it can."""
    speed = trial.measurement
    if speed is None:
        return None if trial.state == "failed" else f"{trial.state} without a speed"
    if not (is_above_0(speed.time_us) and is_above_0(speed.gflops)):
        return "its time or its speed is not above 0"
    if trial.speed_factor is not None and not is_above_0(trial.speed_factor):
        return "its speed factor is not above 0"
    return None


def earlier_search(job_id: int, problem: str, target: str, ran: int) -> Earlier | None:
    """Return an earlier search for transfer; log and return None if its work is unreadable."""
    try:
        parse_target(target)
        return Earlier(job_id, parse_problem(problem), target, ran)
    except KernelsError as error:
        tell_once(log, f"job {job_id} is damaged, so no search learns from it: {error}")
        return None


_SHARED = (
    *("number", "params", "state", "origin", "failure", "message"),
    *("rejected", "compile_s", "max_error"),
)
"""The columns that are fields of a trial as they are."""


def row(job_id: int, trial: TrialRecord) -> dict[str, Any]:
    """Return a trial as the columns of a row of job `job_id`."""
    speed = trial.measurement
    low, high = speed.interval if speed else (None, None)
    return {
        "job_id": job_id,
        **{name: getattr(trial, name) for name in _SHARED},
        "pace": trial.speed_factor,
        "hash": trial.schedule.hash,
        "steps": trial.schedule.to_json(),
        "gflops": speed.gflops if speed else None,
        "low": low,
        "high": high,
        "time_us": speed.time_us if speed else None,
        "samples": pack_samples(trial.samples),
    }


def readable(row: models.Trial) -> TrialRecord | None:
    """Return a row as a trial; log and return None if it is damaged."""
    broken = damage(row)
    if broken is None:
        try:
            trial = record(row)
            broken = fault_of(trial)
            if broken is None:
                return trial
        except (KernelsError, ValueError, TypeError) as error:
            broken = str(error)
    tell_once(log, f"job {row.job_id}: trial {row.number} is damaged and left out: {broken}")
    return None


def record(row: models.Trial) -> TrialRecord:
    """Return a row as the trial that was stored."""
    return TrialRecord(
        **{name: getattr(row, name) for name in _SHARED},
        speed_factor=row.pace,
        schedule=read_steps(row.steps),
        measurement=_measurement(row),
        samples=unpack_samples(row.samples),
    )


def _measurement(row: models.Trial) -> Measurement | None:
    if row.gflops is None or row.low is None or row.high is None or row.time_us is None:
        return None
    return Measurement(row.gflops, (row.low, row.high), row.time_us)


def pack_samples(samples: tuple[float, ...]) -> bytes:
    """Pack samples as little-endian float64, without loss."""
    packed = array.array("d", samples)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_samples(blob: bytes) -> tuple[float, ...]:
    """Unpack the samples of `pack_samples`."""
    packed = array.array("d", blob)
    if sys.byteorder == "big":
        packed.byteswap()
    return tuple(packed)
