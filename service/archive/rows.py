"""Rows of the database as lines; a row that is damaged or was tampered with becomes none."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy.orm import Session

from tilewise.service.archive.container import holds_nul, said
from tilewise.service.archive.fields import Line
from tilewise.service.archive.lines import (
    JobLine,
    MachineLine,
    ModelLine,
    PastLine,
    ProblemLine,
    ProofLine,
    RangeLine,
    ScheduleLine,
    ScriptLine,
    SuiteLine,
    ToolchainLine,
    TrialLine,
    name_of,
)
from tilewise.service.db import models
from tilewise.service.db.base import damage
from tilewise.service.results import integrity
from tilewise.service.results.stored import ResultKey

Made = TypeVar("Made", bound=Line)
Json = dict[str, Any]


@dataclass(frozen=True)
class RefusedRow:
    """Why a row has no line."""

    why: str


def made(line: type[Made], values: Mapping[str, Any]) -> Made | RefusedRow:
    """A line of some values, as far as it will be read again."""
    try:
        found = line.model_validate(values)
    except (ValidationError, RecursionError) as error:
        return RefusedRow(
            said(error) if isinstance(error, ValidationError) else "it nests too deep"
        )
    return RefusedRow("a text holds NUL") if holds_nul(text_of(found)) else found


def text_of(line: Line) -> bytes:
    """A line as it is written, without its end."""
    return line.model_dump_json().encode()


def problem_line(row: models.Problem) -> ProblemLine | RefusedRow:
    """A problem as a line."""
    broken = damage(row) or _misnamed(row)
    if broken is not None:
        return RefusedRow(broken)
    return made(ProblemLine, {"problem": row.canonical, "created_at": row.created_at})


def toolchain_line(row: models.Toolchain) -> ToolchainLine | RefusedRow:
    """A toolchain as a line."""
    return made(ToolchainLine, {"toolchain": row.identity, "created_at": row.created_at})


def job_line(row: models.Job) -> JobLine | RefusedRow:
    """A job as a line; one that runs has run until it last showed itself."""
    broken = damage(row)
    if broken is not None:
        return RefusedRow(broken)
    for referred in (problem_line(row.problem), toolchain_line(row.toolchain)):
        if isinstance(referred, RefusedRow):
            return referred
    values = {name: getattr(row, name) for name in _own(JobLine) if name not in ("job", *_WORK)}
    if row.heartbeat_at and row.claimed_at and row.state == "running":
        run = row.heartbeat_at - row.claimed_at
        values["elapsed_s"] += max(0.0, run.total_seconds())
    named = JobLine.model_construct(**values, **_work_of(row), job="")
    return made(JobLine, {**dict(named), "job": name_of(named)})


def trial_line(row: Any, job: str) -> TrialLine | RefusedRow:
    """Return a trial of the job named `job` as a line."""
    values = {name: getattr(row, name) for name in _own(TrialLine) if name != "job"}
    return made(TrialLine, {**values, "job": job})


def schedule_line(
    session: Session, row: models.Schedule, job: str, proofs: list[models.Proof]
) -> ScheduleLine | RefusedRow:
    """Return a schedule with its proofs as a line, unless one of them was changed."""
    values = _result_values(row, job)
    if isinstance(values, RefusedRow):
        return values
    if integrity.tampered_proofs(session, row):
        return _TAMPERED
    return made(ScheduleLine, {**values, "proofs": [_proof_values(proof) for proof in proofs]})


def past_line(row: models.PastSchedule, job: str) -> PastLine | RefusedRow:
    """Return a past result of the job named `job` as a line, unless it was changed."""
    values = _result_values(row, job)
    if isinstance(values, RefusedRow):
        return values
    ended = {"was_best": row.was_best, "ended_at": row.ended_at}
    return made(PastLine, {**values, **ended, "proofs": []})


def range_line(row: models.TunedRange) -> RangeLine | RefusedRow:
    """Return the variants of a range as a line, unless the row was changed."""
    broken = damage(row)
    if broken is not None:
        return RefusedRow(broken)
    for referred in (machine_line(row.machine), toolchain_line(row.toolchain)):
        if isinstance(referred, RefusedRow):
            return referred
    if not integrity.is_range_whole(row):
        return _TAMPERED
    own = {"host", "digest", *_WORK}
    values = {name: getattr(row, name) for name in _own(RangeLine) if name not in own}
    digest = travelling_range(ResultKey.of(row), values)
    return made(RangeLine, {**values, **_work_of(row), "host": row.machine.host, "digest": digest})


def _result_values(row: models.Schedule | models.PastSchedule, job: str) -> Json | RefusedRow:
    """The fields of a result's line that a stored and a past one share."""
    broken = damage(row)
    if broken is not None:
        return RefusedRow(broken)
    machine = machine_line(row.machine)
    if isinstance(machine, RefusedRow):
        return machine
    if not integrity.is_whole(row):
        return _TAMPERED
    own = {"job", "host", "proofs", "digest", *_WORK}
    values = {name: getattr(row, name) for name in _own(ScheduleLine) if name not in own}
    for name in ("gflops", "low", "high", "time_us", "peak_gflops", "elapsed_s"):
        values[name] = float(values[name])
    return {
        **values,
        **_work_of(row),
        "job": job,
        "host": row.machine.host,
        "digest": travelling(ResultKey.of(row), values, job),
    }


_TAMPERED = RefusedRow("it is not what was stored")


def travelling(work: ResultKey, values: Mapping[str, Any], job: str) -> str:
    """The digest of a schedule with its job's name in the place of the job's number."""
    return integrity.schedule_digest(work, models.Schedule(**values, job_id=job))


def travelling_range(work: ResultKey, values: Mapping[str, Any]) -> str:
    """Return the digest of a range with 0 in place of its job's number."""
    return integrity.range_digest(work, models.TunedRange(**values, job_id=0))


def machine_line(row: models.Machine) -> MachineLine | RefusedRow:
    """A machine as a line."""
    return made(MachineLine, {name: getattr(row, name) for name in _own(MachineLine)})


def suite_line(row: models.SuiteReport) -> SuiteLine | RefusedRow:
    """A report of a suite as a line."""
    return made(SuiteLine, {"report": row.report, "created_at": row.created_at})


def model_line(row: models.Network) -> ModelLine | RefusedRow:
    """A model as a line."""
    toolchain = toolchain_line(row.job.toolchain)
    if isinstance(toolchain, RefusedRow):
        return toolchain
    own = {name: getattr(row, name) for name in ("sha256", "problems", "skipped")}
    of_job = ("target", "trials", "cache", "created_at")
    values = own | {name: getattr(row.job, name) for name in of_job}
    return made(ModelLine, {**values, "toolchain": row.job.toolchain.identity})


_WORK = ("problem", "toolchain")


def _work_of(
    row: models.Job | models.Schedule | models.PastSchedule | models.TunedRange,
) -> Json:
    return {"problem": row.problem.canonical, "toolchain": row.toolchain.identity}


def _misnamed(row: models.Problem) -> str | None:
    """What is wrong with a problem whose key is not that of its canonical string."""
    is_named = hashlib.sha256(row.canonical.encode()).hexdigest() == row.key
    return None if is_named else "its problem does not have its key"


def _proof_values(row: models.Proof) -> Json:
    values = {name: getattr(row, name) for name in _own(ProofLine) if name != "script"}
    script = row.script
    if script is None:
        return {**values, "script": None}
    return {**values, "script": {name: getattr(script, name) for name in _own(ScriptLine)}}


def _own(line: type[Line]) -> tuple[str, ...]:
    return tuple(line.model_fields)
