"""The end of a job: schedule, scripts and proofs, stored with it in one transaction."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from kernels.schedule import Schedule
from search.records import Best, TuneResult
from service import lease, queries
from service.db import models
from service.db.base import is_sound, now
from service.db.rows import machine_row
from service.lease import Lease
from service.machine import MachineInfo
from service.results import measured_json, peers_json

if TYPE_CHECKING:  # it loads MLIR
    from kernels.mlir import Proof

FLAVOR = "cpu"


@dataclass(frozen=True)
class Attempt:
    """One script that was put to the proof.

    Attributes:
        schedule: what the script spells.
        proof: None when the prover itself failed.
        error: why there is no proof.
    """

    schedule: Schedule
    proof: "Proof | None"
    error: str = ""


def store(
    session: Session,
    held: Lease,
    result: TuneResult,
    best: Best,
    attempts: Sequence[Attempt],
    machine: MachineInfo,
) -> models.Schedule | None:
    """End a job with what it found.

    The row of (problem, target, toolchain) keeps the faster of what it has and what is
    new, of all its scripts the fastest that was proven, and the failed attempts of this job.

    Returns:
        The schedule's row; None, with nothing stored, when the job was cancelled or taken over.
    """
    if not lease.end(session, held, state="done", complete=result.complete):
        return None
    job = session.get_one(models.Job, held.job_id)
    row = _schedule_row(session, job, result, best, machine)
    _drop(session, row, proven=False)
    for attempt in attempts:
        _add_attempt(session, row, attempt)
    session.flush()
    kept = queries.proven_script(session, row, FLAVOR)
    if kept is not None:
        _drop(session, row, proven=True, but=kept.id)
    return row


def _schedule_row(
    session: Session, job: models.Job, result: TuneResult, best: Best, machine: MachineInfo
) -> models.Schedule:
    row = queries.find_fresh(
        session, job.problem.key, job.target, job.toolchain.identity, job.cache
    )
    spent = job.trials if result.complete else len(result.trials)
    if row is None:
        row = models.Schedule(
            problem=job.problem,
            target=job.target,
            toolchain=job.toolchain,
            cache=job.cache,
            budget=0,
        )
        _fill(session, row, job, result, best, machine)
        session.add(row)
    elif not is_sound(row):
        _fill(session, row, job, result, best, machine)
        row.budget = 0  # it claims nothing that nobody can read
    elif best.measurement.gflops >= row.gflops or (job.peers and row.peers is None):
        _fill(session, row, job, result, best, machine)
    row.budget = max(row.budget, spent)
    session.flush()
    return row


def _fill(
    session: Session,
    row: models.Schedule,
    job: models.Job,
    result: TuneResult,
    best: Best,
    machine: MachineInfo,
) -> None:
    row.machine_id = _flushed(session, machine_row(session, machine))
    row.job_id = job.id
    row.hash = best.schedule.hash
    row.steps = best.schedule.to_json()
    row.gflops = best.measurement.gflops
    row.low, row.high = best.measurement.interval
    row.time_us = best.measurement.time_us
    row.peak_gflops = best.peak_gflops
    row.scratch_bytes = best.scratch_bytes
    row.measured = measured_json(best)
    # Peers belong to the rounds of this best; those of other rounds would compare nothing.
    row.peers = peers_json(result.peers) if job.peers else None
    row.elapsed_s = job.elapsed_s
    row.complete = result.complete
    row.created_at = now()


def _flushed(session: Session, row: models.Machine) -> int:
    session.flush()
    return row.id


def _add_attempt(session: Session, row: models.Schedule, attempt: Attempt) -> None:
    proof = attempt.proof
    if proof is None:
        session.add(
            models.Proof(
                schedule_id=row.id,
                ok=False,
                applied=False,
                executed=False,
                mlir="",
                failure="prover",
                message=attempt.error,
            )
        )
        return
    spelled = attempt.schedule.hash, attempt.schedule.to_json()
    add_script(session, row, FLAVOR, spelled, proof)


def add_script(
    session: Session,
    row: models.Schedule,
    flavor: str,
    spelled: tuple[str, list[Any]],
    proof: "Proof",
) -> None:
    """Store a proof, and the script if one came about.

    Args:
        session: an open transaction.
        row: the schedule that it belongs to.
        flavor: of the script.
        spelled: hash and steps of what the script spells.
        proof: what became of it; only one that is `ok` will be served.
    """
    low, high = proof.interval or (None, None)
    session.add(
        models.Proof(
            schedule_id=row.id,
            script=_script(row, flavor, spelled, proof.script) if proof.script else None,
            ok=proof.ok and bool(proof.script),
            applied=proof.applied,
            executed=proof.executed,
            max_error=proof.max_error,
            tolerance=proof.tolerance,
            gflops=proof.gflops,
            low=low,
            high=high,
            time_us=proof.time_us,
            mlir=proof.mlir,
            failure=proof.failure,
            message=proof.message,
        )
    )


def _script(
    row: models.Schedule, flavor: str, spelled: tuple[str, list[Any]], text: str
) -> models.Script:
    name, steps = spelled
    return models.Script(
        schedule_id=row.id,
        flavor=flavor,
        hash=name,
        steps=steps,
        text=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


def _drop(session: Session, row: models.Schedule, *, proven: bool, but: int = 0) -> None:
    """Forget the row's proven or failed attempts, except the script `but`.

    Those of other flavors stay: they do not depend on what this search found.
    """
    attempts = session.execute(
        select(models.Proof.id, models.Proof.script_id)
        .outerjoin(models.Proof.script)
        .where(
            models.Proof.schedule_id == row.id,
            models.Proof.ok == proven,
            models.Proof.script_id.is_distinct_from(but),
            queries.of_flavor(FLAVOR),
        )
    ).all()
    scripts = [script_id for _, script_id in attempts if script_id is not None]
    session.execute(delete(models.Proof).where(models.Proof.id.in_([a.id for a in attempts])))
    session.execute(delete(models.Script).where(models.Script.id.in_(scripts)))
