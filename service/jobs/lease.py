"""Leases: which process runs a job, and how a job outlives the process.

A running job belongs to its owner until the owner ends it, gives it back, is seen dead
on this host, or has not shown itself for `LEASE`. Every claim begins a run with a number of its
own, the job's epoch. A claim is one UPDATE that names the run before it, and what a run changes
is one that names the run itself: of two processes that race one wins and the other is told, and
a run that lost its job changes nothing, also where the next run has the same owner.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from sqlalchemy import Update, bindparam, or_, select, update
from sqlalchemy.orm import Session

from service.db.base import damage, now
from service.db.models import Job, JobState, Toolchain
from service.errors import LeaseLostError
from service.host.process_identity import host_of, is_dead

LEASE = timedelta(seconds=60)
GRACE = timedelta(seconds=15)
"""For so long after an outage of the database nobody's lease counts as late for those who saw it:
all owners were silent meanwhile, and show themselves as soon as they can."""

MOST_CRASHES = 3
_DAMAGED = "its row in the database is damaged: {}; ask again"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lease:
    """One run of a job, as the writes of that run name it.

    Attributes:
        job_id: the job.
        owner: the process that runs it, from `service.host.process_identity.me`.
        epoch: the number of the run among the job's runs.
    """

    job_id: int
    owner: str
    epoch: int

    @property
    def name(self) -> str:
        """What is run, for the log."""
        return f"job {self.job_id}"

    def beat(self, session: Session) -> None:
        """As `beat` does."""
        beat(session, self)

    def holds(self, session: Session) -> bool:
        """As `holds` does."""
        return holds(session, self)

    def release(self, session: Session) -> bool:
        """As `release` does."""
        return release(session, self)

    def crash(self, session: Session, why: str) -> None:
        """As `crash` does."""
        crash(session, self, why)


def claim_one(session: Session, job_id: int, owner: str) -> Lease | None:
    """Take this one job; None when it has ended or somebody runs it."""
    job = session.get(Job, job_id)
    return None if job is None else claim_read(session, job, owner)


def claim_read(session: Session, job: Job, owner: str) -> Lease | None:
    """Take a job that was read in this transaction; None where it is not free any more."""
    if fail_damaged(session, job) or not is_free(job):
        return None
    return _take(session, job, owner)


def beat(session: Session, held: Lease, *, has_trial: bool = False) -> None:
    """Show that the run goes on; also after a cancellation, which it has yet to see.

    Args:
        session: a transaction that writes.
        held: the run.
        has_trial: whether it has just finished a trial; then its job does not kill its workers.

    Raises:
        LeaseLostError: another run has the job.
    """
    values = {
        "job_is": held.job_id,
        "owner_is": held.owner,
        "epoch_is": held.epoch,
        "moment": now(),
    }
    if not session.connection().execute(_TRIAL if has_trial else _BEAT, values).rowcount:
        raise LeaseLostError(f"job {held.job_id} was taken over by another process")


def holds(session: Session, held: Lease) -> bool:
    """Whether the job is running, and this is its run."""
    values = {"job_is": held.job_id, "owner_is": held.owner, "epoch_is": held.epoch}
    return session.scalar(_RUNNING, values) is not None


def release(session: Session, held: Lease) -> bool:
    """Give a job back to the queue; False when this was not its run."""
    return _leave(session, held, state="queued")


def crash(session: Session, held: Lease, why: str) -> None:
    """Count the death of a worker: the job is queued again, or fails at `MOST_CRASHES`.

    Each finished trial begins the count anew. Nothing happens when the run is not the job's
    any more.
    """
    job = session.get(Job, held.job_id)
    if job is None:
        return
    broken = damage(job)
    if broken is not None:
        _leave(session, held, state="failed", error=_DAMAGED.format(broken), complete=False)
        return
    crashes = job.crashes + 1
    if crashes < MOST_CRASHES:
        _leave(session, held, state="queued", crashes=crashes)
    else:
        error = f"the worker died {crashes} times; the last time: {why}"
        _leave(session, held, state="failed", crashes=crashes, error=error, complete=False)


def end(session: Session, held: Lease, **values: Any) -> bool:
    """End a job as its run; False when it was cancelled or taken over meanwhile."""
    return _leave(session, held, **values)


def has_left(session: Session, held: Lease, state: JobState) -> bool:
    """Whether the job has ended in a state, and this was its last run."""
    query = select(Job.id).where(
        Job.id == held.job_id, Job.epoch == held.epoch, Job.state == state, Job.owner.is_(None)
    )
    return session.scalar(query) is not None


def call_off(job: Job) -> None:
    """Cancel a job, whoever runs it, in the transaction that has read it.

    The owner stays, so that the trial that is under way can be stored.
    """
    job.elapsed_s, job.claimed_at = _spent_s(job, _last_sign(job)), None
    job.state, job.complete, job.finished_at = "cancelled", False, now()


def fail(job: Job, error: str) -> None:
    """Fail a job from outside its run, in the transaction that has read it."""
    job.elapsed_s = _spent_s(job, _last_sign(job))
    job.owner = job.claimed_at = job.heartbeat_at = None
    job.state, job.complete, job.finished_at = "failed", False, now()
    job.error = error


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
    jobs = [job for job in session.scalars(query) if damage(job) or is_free(job)]
    for job in jobs:
        fail(job, f"it was for the toolchain {job.toolchain.identity}, which changed; ask again")
    return len(jobs)


def fail_damaged(session: Session, job: Job) -> bool:
    """Fail a job whose row cannot be read, with a message that says so; False for a sound one."""
    broken = damage(job)
    if broken is None:
        return False
    message = _DAMAGED.format(broken)
    log.error("job %d fails: %s", job.id, message)
    fail(job, message)
    session.flush()
    return True


def is_free(job: Job) -> bool:
    """Whether a job waits, or is known to have lost the run that it had."""
    if job.state != "running":
        return job.state == "queued"
    return _is_late(job) or (job.owner is not None and is_dead(job.owner))


def _is_late(job: Job) -> bool:
    """Whether a running job has shown no sign of late, or none at all, which no claim leaves."""
    if job.state != "running":
        return False
    return job.heartbeat_at is None or job.heartbeat_at < now() - LEASE


def _take(session: Session, job: Job, owner: str) -> Lease | None:
    moment = now()
    statement = (
        update(Job)
        .where(Job.id == job.id, Job.state == job.state, Job.epoch == job.epoch)
        .values(
            state="running",
            owner=owner,
            host=host_of(owner),
            epoch=Job.epoch + 1,
            claimed_at=moment,
            heartbeat_at=moment,
            started_at=job.started_at or moment,
            unserved_since=None,
            elapsed_s=_spent_s(job, job.heartbeat_at),
        )
    )
    if _is_late(job):  # it may have shown itself since the row was read
        still_late = or_(Job.heartbeat_at.is_(None), Job.heartbeat_at < moment - LEASE)
        statement = statement.where(still_late)
    taken = _changed(session, statement)
    session.refresh(job)
    return Lease(job.id, owner, job.epoch) if taken else None


def _leave(session: Session, held: Lease, *, state: str, **values: Any) -> bool:
    job = session.get(Job, held.job_id, populate_existing=True)
    if job is None:
        return False
    moment = now()
    statement = (
        _of_run(held.job_id, held.owner, held.epoch)
        .where(Job.state == "running")
        .values(
            state=state,
            owner=None,
            claimed_at=None,
            heartbeat_at=None,
            elapsed_s=_spent_s(job, moment),
            finished_at=None if state == "queued" else moment,
            **values,
        )
    )
    left = _changed(session, statement)
    session.refresh(job)
    return left


def _last_sign(job: Job) -> datetime | None:
    """Until when a run counts that is ended from outside: until now, if its owner lives."""
    if job.state == "running" and damage(job) is None and not is_free(job):
        return now()
    return job.heartbeat_at


def _spent_s(job: Job, until: datetime | None) -> float:
    """Seconds of all runs, the present one up to a moment; a value that is garbled adds nothing."""
    is_number = isinstance(job.elapsed_s, float) and isfinite(job.elapsed_s)
    spent = job.elapsed_s if is_number else 0.0
    if isinstance(job.claimed_at, datetime) and isinstance(until, datetime):
        spent += max(0.0, (until - job.claimed_at).total_seconds())
    return spent


def _of_run(job_id: Any, owner: Any, epoch: Any) -> Update:
    return update(Job).where(Job.id == job_id, Job.owner == owner, Job.epoch == epoch)


# Made once, since it goes with every trial.
_BEAT = _of_run(bindparam("job_is"), bindparam("owner_is"), bindparam("epoch_is")).values(
    heartbeat_at=bindparam("moment")
)
_TRIAL = _BEAT.values(crashes=0)
_RUNNING = select(Job.id).where(
    Job.id == bindparam("job_is"),
    Job.owner == bindparam("owner_is"),
    Job.epoch == bindparam("epoch_is"),
    Job.state == "running",
)


def _changed(session: Session, statement: Update) -> bool:
    done = session.execute(statement.returning(Job.id).execution_options(synchronize_session=False))
    return done.first() is not None
