"""Rows of the database as lines; a row that is damaged or was tampered with is refused."""

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy.orm import Session

from tilewise.schema.base import Json
from tilewise.service.archive import lines
from tilewise.service.archive.container import describe, holds_nul
from tilewise.service.archive.fields import Line
from tilewise.service.db import models
from tilewise.service.db.base import Base, damage
from tilewise.service.results import integrity
from tilewise.service.results.integrity import Result
from tilewise.service.results.stored import ResultKey

Made = TypeVar("Made", bound=Line)


class RefusedRowError(Exception):
    """A row has no line; the message says why."""


def made(line: type[Made], values: Mapping[str, Any]) -> Made:
    """Return a line of some values; raise RefusedRowError where it would not be read again."""
    try:
        found = line.model_validate(values)
    except ValidationError as error:
        raise RefusedRowError(describe(error)) from error
    except RecursionError as error:
        raise RefusedRowError("it nests too deep") from error
    if holds_nul(text_of(found)):
        raise RefusedRowError("a text holds NUL")
    return found


def text_of(line: Line) -> bytes:
    """Return a line as it is written, without its end."""
    return line.model_dump_json().encode()


# All of these raise RefusedRowError for a row that is damaged, was changed, or refers to such one.


def problem_line(row: models.Problem) -> lines.ProblemLine:
    """Return a problem as a line."""
    _require_sound(row)
    if hashlib.sha256(row.canonical.encode()).hexdigest() != row.key:
        raise RefusedRowError("its problem does not have its key")
    return made(lines.ProblemLine, {"problem": row.canonical, "created_at": row.created_at})


def toolchain_line(row: models.Toolchain) -> lines.ToolchainLine:
    """Return a toolchain as a line."""
    return made(lines.ToolchainLine, {"toolchain": row.identity, "created_at": row.created_at})


def job_line(row: models.Job) -> lines.JobLine:
    """Return a job as a line; a running one has run until its last heartbeat."""
    _require_sound(row)
    problem_line(row.problem)
    toolchain_line(row.toolchain)
    values = {**_own(lines.JobLine, row, "job", *_WORK), **_work_of(row)}
    if row.heartbeat_at and row.claimed_at and row.state == "running":
        run = row.heartbeat_at - row.claimed_at
        values["elapsed_s"] += max(0.0, run.total_seconds())
    named = lines.JobLine.model_construct(**values, job="")
    return made(lines.JobLine, {**values, "job": lines.name_of(named)})


def trial_line(row: Any, job: str) -> lines.TrialLine:
    """Return a trial of the job named `job` as a line."""
    return made(lines.TrialLine, {**_own(lines.TrialLine, row, "job"), "job": job})


def schedule_line(
    session: Session, row: models.Schedule, job: str, proofs: list[models.Proof], origin: str = ""
) -> lines.ScheduleLine:
    """Return a schedule with its proofs as a line; one without an origin gets this one."""
    values = _result_values(row, job, {"origin": origin} if origin else {})
    if integrity.tampered_proofs(session, row):
        raise RefusedRowError(_TAMPERED)
    return made(
        lines.ScheduleLine, {**values, "proofs": [_proof_values(proof) for proof in proofs]}
    )


def past_line(row: models.PastSchedule, job: str) -> lines.PastLine:
    """Return a past result of the job named `job` as a line."""
    ended = {"was_best": row.was_best, "ended_at": row.ended_at}
    return made(lines.PastLine, {**_result_values(row, job), **ended, "proofs": []})


def range_line(row: models.TunedRange) -> lines.RangeLine:
    """Return the variants of a range as a line."""
    return made(lines.RangeLine, _result_values(row))


def _result_values(row: Result, job: str | None = None, measured: Json | None = None) -> Json:
    """The fields of a result's line that do not depend on where it is stored.

    `measured` is added to the object of this name, where that has no such keys.
    """
    _require_sound(row)
    machine_line(row.machine)
    toolchain_line(row.toolchain)
    if not integrity.is_whole(row):
        raise RefusedRowError(_TAMPERED)
    kind = lines.RangeLine if isinstance(row, models.TunedRange) else lines.ScheduleLine
    values = _own(kind, row, "job", "host", "proofs", "digest", *_WORK)
    for name in _FLOATS & values.keys():
        values[name] = float(values[name])
    if measured:
        values["measured"] = measured | (values["measured"] or {})
    digest = travelling(ResultKey.of(row), values, job)
    of_job = {} if job is None else {"job": job}
    return {**values, **_work_of(row), **of_job, "host": row.machine.host, "digest": digest}


_FLOATS = {"gflops", "low", "high", "time_us", "peak_gflops", "elapsed_s"}
_TAMPERED = "it is not what was stored"


def travelling(work: ResultKey, values: Mapping[str, Any], job: str | None) -> str:
    """Return the digest of a schedule with its job's name for the number, of a range with 0."""
    if job is None:
        return integrity.result_digest(work, models.TunedRange(**values, job_id=0))
    return integrity.result_digest(work, models.Schedule(**values, job_id=job))


def machine_line(row: models.Machine) -> lines.MachineLine:
    """Return a machine as a line."""
    return made(lines.MachineLine, _own(lines.MachineLine, row))


def suite_line(row: models.SuiteReport) -> lines.SuiteLine:
    """Return a report of a suite as a line."""
    return made(lines.SuiteLine, {"report": row.report, "created_at": row.created_at})


def model_line(row: models.Network) -> lines.ModelLine:
    """Return a model as a line."""
    toolchain_line(row.job.toolchain)
    of_job = ("target", "trials", "cache", "created_at")
    values = {name: getattr(row.job, name) for name in of_job}
    values |= _own(lines.ModelLine, row, "toolchain", *of_job)
    return made(lines.ModelLine, {**values, "toolchain": row.job.toolchain.identity})


_WORK = ("problem", "toolchain")


def _work_of(row: models.Job | Result) -> Json:
    return {"problem": row.problem.canonical, "toolchain": row.toolchain.identity}


def _require_sound(row: Base) -> None:
    broken = damage(row)
    if broken is not None:
        raise RefusedRowError(broken)


def _proof_values(row: models.Proof) -> Json:
    script = None if row.script is None else _own(lines.ScriptLine, row.script)
    return {**_own(lines.ProofLine, row, "script"), "script": script}


def _own(line: type[Line], row: Any, *others: str) -> Json:
    """The values of a row that a line has by the names of the columns, all but some."""
    return {name: getattr(row, name) for name in line.model_fields if name not in others}
