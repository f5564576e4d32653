"""The end of a job: store its schedule, scripts and proofs in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from tilewise.kernels.mlir.proof.proof import ScriptProof
from tilewise.kernels.mlir.tuning_spec.config import AnySchedule
from tilewise.schema.base import Json
from tilewise.search.records import Measurement, TuneResult, Winner
from tilewise.service.db import models
from tilewise.service.db.base import now
from tilewise.service.db.rows import inserted, machine_row
from tilewise.service.host.machine import MachineInfo
from tilewise.service.jobs import lease
from tilewise.service.jobs.lease import Lease
from tilewise.service.results import history, integrity, schedules, stored
from tilewise.service.results.scripts import (
    add_proof,
    add_script,
    drop_proofs,
    searched_flavor,
    searched_proofs,
)
from tilewise.service.results.stored import Lookup, ResultKey


@dataclass(frozen=True)
class Attempt:
    """One attempt to prove a script.

    `proof` is None if the prover failed, for the reason in `error`; `failure` is its class, such as
    `unsupported`.
    """

    schedule: AnySchedule
    proof: ScriptProof | None
    error: str = ""
    failure: str = "prover"


def store(
    session: Session,
    held: Lease,
    result: TuneResult,
    best: Winner,
    attempts: Sequence[Attempt],
    machine: MachineInfo,
) -> models.Schedule | None:
    """End a job with its result; return None if it was cancelled or taken over.

    The row of (problem, target, toolchain) keeps the better result
    (`tilewise.search.final_benchmark.quality`), and the other goes into the history. It keeps the
    fastest proven script and the failed attempts of this job. A stored row that was tampered with
    gives way, however fast it claims to be.
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
    session: Session, job: models.Job, result: TuneResult, best: Winner, machine: MachineInfo
) -> models.Schedule:
    """The row, locked, so that a faster schedule that an import brings now is not overwritten."""
    new = _made(session, job, result, best, machine)
    found = _locked(session, job)
    if found is None and inserted(session, new):
        row = new
    else:
        stored_one = found or _locked(session, job)
        assert stored_one is not None, "the constraint that was met is that of the work"
        row = stored_one
        _merge(session, row, job, new)
    row.digest = integrity.result_digest(ResultKey.of(row), row)
    session.flush()
    return row


def _merge(session: Session, row: models.Schedule, job: models.Job, new: models.Schedule) -> None:
    """Make of what is stored and what is new the row; the other one goes into the history."""
    if not _gives_way(row, job, new):
        history.add_unkept(session, new)
    else:
        history.supersede(session, row)
        row.budget = row.budget if integrity.is_whole(row) else 0
        for name in _OF_JOB:
            setattr(row, name, getattr(new, name))
    row.budget = max(row.budget, new.budget)


def _locked(session: Session, job: models.Job) -> models.Schedule | None:
    return schedules.find_fresh(session, job.problem.key, Lookup.of(job), lock=True)


def _made(
    session: Session, job: models.Job, result: TuneResult, best: Winner, machine: MachineInfo
) -> models.Schedule:
    """The row of what a job has found, which is not part of the session yet."""
    low, high = best.measurement.interval
    used = machine_row(session, machine)
    session.flush()
    return models.Schedule(
        problem=job.problem,
        problem_id=job.problem_id,
        target=job.target,
        toolchain=job.toolchain,
        toolchain_id=job.toolchain_id,
        cache=job.cache,
        machine_id=used.id,
        job_id=job.id,
        hash=best.schedule.hash,
        steps=best.schedule.to_json(),
        gflops=best.measurement.gflops,
        low=low,
        high=high,
        time_us=best.measurement.time_us,
        peak_gflops=best.peak_gflops,
        scratch_bytes=best.scratch_bytes,
        # Peers belong to the rounds of this best; those of other rounds would compare nothing.
        peers=peers_json(result.peers) if job.peers or result.peers else None,
        measured=measured_json(best),
        budget=job.trials if result.complete else len(result.trials),
        elapsed_s=job.elapsed_s,
        complete=result.complete,
        created_at=now(),
    )


_OF_JOB = (
    *("machine_id", "job_id", "hash", "steps", "gflops", "low", "high", "time_us", "peak_gflops"),
    *("scratch_bytes", "peers", "measured", "elapsed_s", "complete", "created_at"),
)
"""The columns that a result brings to the row of its work."""


def _gives_way(row: models.Schedule, job: models.Job, new: models.Schedule) -> bool:
    """Whether what is stored is damaged, no better than what is new, or lacks the peers."""
    if not integrity.is_whole(row):
        return True
    mine = history.measured_of(new)
    lacks_peers = job.peers and row.peers is None
    return mine.supersedes(history.measured_of(row)) or (lacks_peers and mine.quality == "good")


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
        failure=attempt.failure,
        message=f"{stored.named(attempt.schedule.hash)}{attempt.error}",
    )
    add_proof(session, row, failed)


def measured_json(best: Winner) -> Json:
    """Return how a best schedule was measured, and its accuracy if it is not direct."""
    names = "samples", "placements", "rejected", "disturbed", "cold"
    return {**{name: getattr(best, name) for name in names}, "accuracy": best.accuracy or None}


def peers_json(peers: dict[str, Measurement]) -> Json:
    """Return the speeds of other libraries, by name."""
    return {
        name: {"gflops": m.gflops, "interval": list(m.interval), "time_us": m.time_us}
        for name, m in peers.items()
    }
