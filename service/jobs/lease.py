"""Leases: which process runs a job, how a job outlives that process, and the time its runs take.

A running job belongs to its owner until the owner ends it, gives it back, is seen dead on this
host, or has not shown itself for `LEASE`. Every claim begins a run with a number of its own, the
job's epoch. A claim is one UPDATE that names the run before it, and what a run changes is one that
names the run itself: of two processes that race one wins and the other learns of it, and a run that
lost its job changes nothing, also where the next run has the same owner.

Every write of a run stores the seconds of all runs so far, by a monotonic clock, and when it did
(`claimed_at`). The time from then to the next write, or until a dead run is noticed, is by the wall
clock, which may be set meanwhile: no more of it counts than a lease lasts.
"""

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from sqlalchemy import Update, bindparam, delete, or_, select, update
from sqlalchemy.orm import Session

from tilewise.schema.base import JobState
from tilewise.service.db.base import damage, now
from tilewise.service.db.models import Job, Plan, PlanSource
from tilewise.service.errors import LeaseLostError
from tilewise.service.host.process_identity import host_of, is_dead

LEASE = timedelta(seconds=60)
GRACE = timedelta(seconds=15)
"""For so long after an outage of the database nobody's lease counts as late for those who saw it:
all owners were silent meanwhile, and show themselves as soon as they can."""

MOST_CRASHES = 3
MOST_CLOCKS = 1024
_DAMAGED = "its row in the database is damaged: {}; retry"
_clocks: dict[tuple[int, int], tuple[float, float]] = {}
"""By job and epoch: seconds of the job at a moment of `time.monotonic`, and that moment."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lease:
    """One run of a job, as its writes name it; `owner` is a `process_identity`."""

    job_id: int
    owner: str
    epoch: int

    @property
    def name(self) -> str:
        """The job, for the log."""
        return f"job {self.job_id}"

    def of_run(self) -> Update:
        """Return an update of the job that applies if this is its run."""
        return update(Job).where(
            Job.id == self.job_id, Job.owner == self.owner, Job.epoch == self.epoch
        )


def fault_of(job: Job) -> str | None:
    """Return what is wrong with a job's row, or with that of its plan; None for sound ones."""
    if job.kind in ("tune", "range", "recheck"):
        return damage(job) or (None if job.problem is not None else "problem_id names no problem")
    if job.kind != "model":
        return f"kind is {job.kind!r}"
    plan = job.plan
    return damage(job) or (None if plan is None else fault_of_plan(plan))


def fault_of_plan(plan: Plan) -> str | None:
    """Return what is wrong with a plan's own row; None for a sound one."""
    broken = damage(plan)
    if broken is not None:
        return broken
    for name, found in (("problems", plan.problems), ("variants", plan.variants)):
        if not all(_is_part(one) for one in found):
            return f"{name} are not objects of a problem and a job"
    return None


def _is_part(found: object) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("problem"), str)
        and isinstance(found.get("job"), int | None)
        and "job" in found
    )


def take(session: Session, job: Job, owner: str) -> Lease | None:
    """Begin a run of a job that was read in this transaction; return None if it is not free.

    A damaged job fails.
    """
    if fail_damaged(session, job) or not is_free(job):
        return None
    moment, spent = now(), _spent_s(job, job.heartbeat_at)
    statement = (
        update(Job)
        .where(Job.id == job.id, Job.state == job.state, Job.epoch == job.epoch)
        .values(
            state="running",
            owner=owner,
            host=host_of(owner),
            epoch=Job.epoch + 1,
            heartbeat_at=moment,
            claimed_at=moment,
            elapsed_s=spent,
            started_at=job.started_at or moment,
            unserved_since=None,
        )
    )
    if _is_late(job):  # it may have shown itself since the row was read
        late = or_(Job.heartbeat_at.is_(None), Job.heartbeat_at < moment - LEASE)
        statement = statement.where(late)
    is_taken = _changed(session, statement)
    session.refresh(job)
    if not is_taken:
        return None
    _start_clock((job.id, job.epoch), spent)
    return Lease(job.id, owner, job.epoch)


def claim_one(session: Session, job_id: int, owner: str) -> Lease | None:
    """Claim this job; return None if it has ended or is running."""
    job = session.get(Job, job_id)
    return None if job is None else take(session, job, owner)


def is_free(job: Job) -> bool:
    """Return whether a job is queued or has lost its run."""
    if job.state != "running":
        return job.state == "queued"
    return _is_late(job) or (job.owner is not None and is_dead(job.owner))


def _is_late(job: Job) -> bool:
    """Whether a running job has shown no sign recently, or none at all, which no claim leaves."""
    if job.state != "running":
        return False
    return job.heartbeat_at is None or job.heartbeat_at < now() - LEASE


def holds(session: Session, held: Lease) -> bool:
    """Return whether the job is running and this is its run."""
    query = select(Job.id).where(
        Job.id == held.job_id,
        Job.owner == held.owner,
        Job.epoch == held.epoch,
        Job.state == "running",
    )
    return session.scalar(query) is not None


def has_left(session: Session, held: Lease, state: str) -> bool:
    """Return whether the job has ended in a state and this was its last run."""
    query = select(Job.id).where(
        Job.id == held.job_id, Job.epoch == held.epoch, Job.state == state, Job.owner.is_(None)
    )
    return session.scalar(query) is not None


def beat(session: Session, held: Lease, *, has_trial: bool = False) -> None:
    """Show that the run goes on; a search may do so until it notices a cancellation.

    `has_trial` resets the count of crashes. Raises LeaseLostError if a model was cancelled or
    another run has the job.
    """
    values = {
        "job_is": held.job_id,
        "owner_is": held.owner,
        "epoch_is": held.epoch,
        "moment": now(),
        "spent": _clocked_s(session, held),
    }
    if not session.connection().execute(_TRIAL if has_trial else _BEAT, values).rowcount:
        raise lost(held)


def lost(held: Lease) -> LeaseLostError:
    """Return the error of a run that has lost its job."""
    return LeaseLostError(f"{held.name} was cancelled, or taken over by another process")


def release(session: Session, held: Lease) -> bool:
    """Return the job to the queue; return False if this was not its run."""
    return end(session, held, state="queued")


def crash(session: Session, held: Lease, why: str) -> None:
    """Count the death of a worker: the job is queued again, or fails at `MOST_CRASHES`.

    A finished trial resets the count. Nothing happens if another run has the job.
    """
    job = session.get(Job, held.job_id, populate_existing=True)
    if job is None:
        return
    broken = fault_of(job)
    if broken is not None:
        end(session, held, state="failed", error=_DAMAGED.format(broken))
        return
    crashes = job.crashes + 1
    if crashes < MOST_CRASHES:
        end(session, held, state="queued", crashes=crashes)
    else:
        error = f"the worker died {crashes} times; the last time: {why}"
        end(session, held, state="failed", crashes=crashes, error=error)


def end(session: Session, held: Lease, *, state: JobState, **values: Any) -> bool:
    """End a run of a job; False if the job was cancelled or taken over.

    `state` may be `queued` for another run; `values` are further columns.
    """
    job = session.get(Job, held.job_id, populate_existing=True)
    if job is None:
        return False
    moment, key = now(), (job.id, job.epoch)
    leaving: dict[str, Any] = {
        "state": state,
        "owner": None,
        "heartbeat_at": None,
        "claimed_at": None,
        "elapsed_s": _read_clock(key) if key in _clocks else _spent_s(job, moment),
        "finished_at": None if state == "queued" else moment,
    }
    if state == "failed":
        leaving["complete"] = False
    statement = held.of_run().where(Job.state == "running").values(**leaving | values)
    is_left = _changed(session, statement)
    session.refresh(job)
    if is_left and state != "queued":
        _drop_source(session, job)
    return is_left


def call_off(session: Session, job: Job) -> None:
    """Cancel a job, whoever runs it, in the transaction that has read it.

    The owner of a search stays, so that the trial that is under way can be stored.
    """
    job.elapsed_s, job.claimed_at = _spent_s(job, _last_sign(job)), None
    if job.kind == "model":
        job.owner = job.heartbeat_at = None
    job.state, job.complete, job.finished_at = "cancelled", False, now()
    _drop_source(session, job)


def fail(session: Session, job: Job, error: str) -> None:
    """Fail a job from outside its run, in the transaction that has read it."""
    job.elapsed_s = _spent_s(job, _last_sign(job))
    job.owner = job.claimed_at = job.heartbeat_at = None
    job.state, job.complete, job.finished_at = "failed", False, now()
    job.error = error
    _drop_source(session, job)


def fail_damaged(session: Session, job: Job) -> bool:
    """Fail a job whose row cannot be read; return False for an undamaged one."""
    broken = fault_of(job)
    if broken is None:
        return False
    message = _DAMAGED.format(broken)
    log.error("job %d fails: %s", job.id, message)
    fail(session, job, message)
    session.flush()
    return True


def _drop_source(session: Session, job: Job) -> None:
    """Forget what the plan of a job was made of, once the job has ended."""
    if job.kind == "model":
        of_job = select(Plan.id).where(Plan.job_id == job.id)
        session.execute(
            delete(PlanSource)
            .where(PlanSource.plan_id.in_(of_job))
            .execution_options(synchronize_session="fetch")
        )


def _changed(session: Session, statement: Update) -> bool:
    """Whether a statement has changed a job."""
    returning = statement.returning(Job.id)
    done = session.execute(returning.execution_options(synchronize_session=False))
    return done.first() is not None


def _last_sign(job: Job) -> datetime | None:
    """Until when a run counts that is ended from outside: until now, if its owner lives."""
    if job.state == "running" and damage(job) is None and not is_free(job):
        return now()
    return job.heartbeat_at


def elapsed_s(job: Job) -> float:
    """Return the seconds of all runs of a job so far; a value that is garbled as it is."""
    if job.state != "running" or job.claimed_at is None:
        return job.elapsed_s
    return job.elapsed_s + _unwritten_s(job, now())


def _spent_s(job: Job, until: datetime | None) -> float:
    """Seconds of all runs, the present one up to a moment; a value that is garbled adds nothing."""
    is_number = isinstance(job.elapsed_s, float) and isfinite(job.elapsed_s)
    spent = job.elapsed_s if is_number else 0.0
    if isinstance(job.claimed_at, datetime) and isinstance(until, datetime):
        spent += _unwritten_s(job, until)
    return spent


def _unwritten_s(job: Job, until: datetime) -> float:
    """Return the seconds since the last write of a run, by the wall clock."""
    assert job.claimed_at is not None
    return min(max(0.0, (until - job.claimed_at).total_seconds()), LEASE.total_seconds())


def _clocked_s(session: Session, held: Lease) -> float:
    """Return the seconds of all runs of a job; a process that did not claim it reads them first."""
    key = held.job_id, held.epoch
    if key not in _clocks:
        job = session.get(Job, held.job_id)
        _start_clock(key, 0.0 if job is None else _spent_s(job, now()))
    return _read_clock(key)


def _start_clock(key: tuple[int, int], spent_s: float) -> None:
    _clocks[key] = spent_s, time.monotonic()
    while len(_clocks) > MOST_CLOCKS:
        del _clocks[next(iter(_clocks))]


def _read_clock(key: tuple[int, int]) -> float:
    spent_s, began = _clocks[key]
    return spent_s + time.monotonic() - began


# Made once, since it goes with every trial.
_BEAT = (
    update(Job)
    .where(
        Job.id == bindparam("job_is"),
        Job.owner == bindparam("owner_is"),
        Job.epoch == bindparam("epoch_is"),
    )
    .values(
        heartbeat_at=bindparam("moment"),
        claimed_at=bindparam("moment"),
        elapsed_s=bindparam("spent"),
    )
)
_TRIAL = _BEAT.values(crashes=0)
