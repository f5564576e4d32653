"""Leases: which process runs a job, and how a job outlives the process.

A running job belongs to its owner until the owner ends it, gives it back, is seen dead
on this host, or has not shown itself for `LEASE`. Every change is one UPDATE that names
the owner it expects, so of two processes that race one wins and the other is told.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Update, bindparam, select, update
from sqlalchemy.orm import Session

from service.db.base import now
from service.db.models import Job, Toolchain
from service.errors import LeaseLostError
from service.owner import is_dead

LEASE = timedelta(seconds=60)
MOST_CRASHES = 3


def claim(session: Session, owner: str, targets: Sequence[str], toolchain: str) -> Job | None:
    """Take the oldest job that these targets and toolchain can run and that nobody runs.

    Args:
        session: a transaction that writes.
        owner: who takes it, from `service.owner.me`.
        targets: the canonical targets that this machine serves.
        toolchain: `kernels.toolchain.identity()`.

    Returns:
        The job, now running and owned; None when there is nothing to do.
    """
    query = (
        select(Job)
        .join(Job.toolchain)
        .where(Job.target.in_(targets), Toolchain.identity == toolchain)
        .where(Job.state.in_(("queued", "running")))
        .order_by(Job.id)
    )
    for job in session.scalars(query):
        if _is_free(job) and _take(session, job, owner):
            return job
    return None


def claim_one(session: Session, job_id: int, owner: str) -> bool:
    """Take this one job; False when it has ended or somebody runs it."""
    job = session.get(Job, job_id)
    return job is not None and _is_free(job) and _take(session, job, owner)


def beat(session: Session, job_id: int, owner: str) -> None:
    """Show that the owner lives; also after a cancellation, which the owner has yet to see.

    Raises:
        LeaseLostError: another process has the job.
    """
    values = {"job_is": job_id, "owner_is": owner, "moment": now()}
    if not session.connection().execute(_BEAT, values).rowcount:
        raise LeaseLostError(f"job {job_id} was taken over by another process")


def holds(session: Session, job_id: int, owner: str) -> bool:
    """Whether the job is running and belongs to `owner`."""
    query = select(Job.id).where(Job.id == job_id, Job.owner == owner, Job.state == "running")
    return session.scalar(query) is not None


def release(session: Session, job_id: int, owner: str) -> bool:
    """Give a job back to the queue; False when it was not running for `owner`."""
    return _leave(session, job_id, owner, state="queued")


def crash(session: Session, job_id: int, owner: str, why: str) -> None:
    """Count the death of a worker: the job is queued again, or fails at `MOST_CRASHES`.

    Nothing happens when the job is no longer running for `owner`.
    """
    job = session.get(Job, job_id)
    if job is None:
        return
    crashes = job.crashes + 1
    if crashes < MOST_CRASHES:
        _leave(session, job_id, owner, state="queued", crashes=crashes)
    else:
        error = f"the worker died {crashes} times; the last time: {why}"
        _leave(session, job_id, owner, state="failed", crashes=crashes, error=error)


def end(session: Session, job_id: int, owner: str, **values: Any) -> bool:
    """End a job as its owner; False when it was cancelled or taken over meanwhile."""
    return _leave(session, job_id, owner, **values)


def retire(session: Session, targets: Sequence[str], toolchain: str) -> int:
    """Fail the waiting jobs of other toolchains, which nothing here can run any more.

    Their trials were timed by code that is gone, so they are not continued by another.

    Returns:
        How many there were.
    """
    query = (
        select(Job)
        .join(Job.toolchain)
        .where(Job.target.in_(targets), Toolchain.identity != toolchain)
        .where(Job.state.in_(("queued", "running")))
        .with_for_update(of=Job)
    )
    jobs = [job for job in session.scalars(query) if _is_free(job)]
    for job in jobs:
        job.state, job.finished_at = "failed", now()
        job.owner = job.claimed_at = job.heartbeat_at = None
        job.error = f"it was for the toolchain {job.toolchain.identity}, which changed; ask again"
    return len(jobs)


def _is_free(job: Job) -> bool:
    if job.state == "queued":
        return True
    if job.state != "running" or job.owner is None or job.heartbeat_at is None:
        return False
    return job.heartbeat_at < now() - LEASE or is_dead(job.owner)


def _take(session: Session, job: Job, owner: str) -> bool:
    moment = now()
    statement = (
        update(Job)
        .where(Job.id == job.id, Job.state == job.state)
        .where(Job.owner.is_not_distinct_from(job.owner))
        .where(Job.heartbeat_at.is_not_distinct_from(job.heartbeat_at))
        .values(
            state="running",
            owner=owner,
            claimed_at=moment,
            heartbeat_at=moment,
            started_at=job.started_at or moment,
            elapsed_s=job.elapsed_s + _run_seconds(job, job.heartbeat_at),
        )
    )
    taken = _changed(session, statement)
    session.refresh(job)
    return taken


def _leave(session: Session, job_id: int, owner: str, *, state: str, **values: Any) -> bool:
    job = session.get(Job, job_id, populate_existing=True)
    if job is None:
        return False
    moment = now()
    statement = (
        _owned(job_id, owner)
        .where(Job.state == "running")
        .values(
            state=state,
            owner=None,
            claimed_at=None,
            heartbeat_at=None,
            elapsed_s=job.elapsed_s + _run_seconds(job, moment),
            finished_at=None if state == "queued" else moment,
            **values,
        )
    )
    left = _changed(session, statement)
    session.refresh(job)
    return left


def _run_seconds(job: Job, until: datetime | None) -> float:
    if job.claimed_at is None or until is None:
        return 0.0
    return (until - job.claimed_at).total_seconds()


def _owned(job_id: Any, owner: Any) -> Update:
    return update(Job).where(Job.id == job_id, Job.owner == owner)


# Made once, since it goes with every trial.
_BEAT = _owned(bindparam("job_is"), bindparam("owner_is")).values(heartbeat_at=bindparam("moment"))


def _changed(session: Session, statement: Update) -> bool:
    done = session.execute(statement.returning(Job.id).execution_options(synchronize_session=False))
    return done.first() is not None
