"""The end of a job: schedule, scripts and proofs, stored with it in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from kernels.schedule import Schedule
from search.records import Best, Measurement, TuneResult
from service.db import models
from service.db.base import now
from service.db.rows import machine_row
from service.host.machine import MachineInfo
from service.jobs import lease
from service.jobs.lease import Lease
from service.results import integrity, schedules, stored
from service.results.scripts import (
    Proven,
    add_proof,
    add_script,
    drop_proofs,
    searched_flavor,
    searched_proofs,
)
from service.results.stored import Work

Json = dict[str, Any]


@dataclass(frozen=True)
class Attempt:
    """One script that was put to the proof.

    Attributes:
        schedule: what the script spells.
        proof: None when the prover itself failed.
        error: why there is no proof.
    """

    schedule: Schedule
    proof: Proven | None
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
    What is not what was stored gives way to what is new, however fast it says it is.

    Returns:
        The schedule's row; None, with nothing stored, when the job was cancelled or taken over.
    """
    if not lease.end(session, held, state="done", complete=result.complete):
        return None
    job = session.get_one(models.Job, held.job_id)
    row = _schedule_row(session, job, result, best, machine)
    drop_proofs(session, integrity.tampered_proofs(session, row))
    drop_proofs(session, [proof for proof in searched_proofs(session, row) if not proof.ok])
    for attempt in attempts:
        _add_attempt(session, row, attempt)
    session.flush()
    kept = stored.fastest_proof(session, row.id, searched_flavor(row.target))
    drop_proofs(session, [p for p in searched_proofs(session, row) if p.ok and p != kept])
    return row


def _schedule_row(
    session: Session, job: models.Job, result: TuneResult, best: Best, machine: MachineInfo
) -> models.Schedule:
    """The row, locked, so that a faster schedule that an import brings now is not overwritten."""
    found = _locked(session, job)
    row, is_new = (found, False) if found else _inserted(session, job, result, best, machine)
    if not is_new and _gives_way(row, job, best):
        row.budget = row.budget if integrity.is_whole(row) else 0
        _fill(session, row, job, result, best, machine)
    row.budget = max(row.budget, job.trials if result.complete else len(result.trials))
    row.digest = integrity.schedule_digest(Work.of(row), row)
    session.flush()
    return row


def _locked(session: Session, job: models.Job) -> models.Schedule | None:
    work = job.problem.key, job.target, job.toolchain.identity, job.cache
    return schedules.find_fresh(session, *work, lock=True)


def _inserted(
    session: Session, job: models.Job, result: TuneResult, best: Best, machine: MachineInfo
) -> tuple[models.Schedule, bool]:
    """The row that was absent, and whether it is this job's: somebody may have been first."""
    row = models.Schedule(
        problem=job.problem, target=job.target, toolchain=job.toolchain, cache=job.cache, budget=0
    )
    _fill(session, row, job, result, best, machine)
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        theirs = _locked(session, job)
        assert theirs is not None, "the constraint that was met is that of the work"
        return theirs, False
    return row, True


def _gives_way(row: models.Schedule, job: models.Job, best: Best) -> bool:
    """Whether what is stored is damaged, no faster than what is new, or lacks the peers."""
    if not integrity.is_whole(row):
        return True
    return best.measurement.gflops >= row.gflops or (job.peers and row.peers is None)


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
    row.peers = peers_json(result.peers) if job.peers or result.peers else None
    row.elapsed_s = job.elapsed_s
    row.complete = result.complete
    row.created_at = now()


def _flushed(session: Session, row: models.Machine) -> int:
    session.flush()
    return row.id


def _add_attempt(session: Session, row: models.Schedule, attempt: Attempt) -> None:
    proof = attempt.proof
    if proof is not None:
        spelled = attempt.schedule.hash, attempt.schedule.to_json()
        add_script(session, row, searched_flavor(row.target), spelled, proof)
        return
    failed = models.Proof(
        schedule_id=row.id,
        ok=False,
        applied=False,
        executed=False,
        mlir="",
        failure="prover",
        message=attempt.error,
    )
    add_proof(session, row, failed)


def measured_json(best: Best) -> Json:
    """How the speed of a best schedule was had, and its accuracy where it is not direct."""
    return {
        "samples": best.samples,
        "placements": best.placements,
        "rejected": best.rejected,
        "disturbed": best.disturbed,
        "cold": best.cold,
        "accuracy": best.accuracy or None,
    }


def peers_json(peers: dict[str, Measurement]) -> Json:
    """The speeds of other libraries, by name."""
    return {
        name: {"gflops": m.gflops, "interval": list(m.interval), "time_us": m.time_us}
        for name, m in peers.items()
    }
