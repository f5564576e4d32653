"""Leases of jobs (`service.leases`), and the time that all runs of a job take.

What is the same for every leased table is in `JOBS`.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import isfinite
from typing import Any

from sqlalchemy import bindparam, update
from sqlalchemy.orm import Session

from service.db.base import damage, now
from service.db.models import Job
from service.errors import LeaseLostError
from service.host.process_identity import host_of
from service.leases import giving_up
from service.leases.table import LeasedTable


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
    def number(self) -> int:
        """The job."""
        return self.job_id

    @property
    def name(self) -> str:
        """What is run, for the log."""
        return f"job {self.job_id}"

    def beat(self, session: Session) -> None:
        """As `beat` does."""
        beat(session, self)

    def holds(self, session: Session) -> bool:
        """Whether the job is running, and this is its run."""
        return holds(session, self)

    def release(self, session: Session) -> bool:
        """Give the job back to the queue; False when this was not its run."""
        return release(session, self)

    def crash(self, session: Session, why: str) -> None:
        """Count the death of a worker; each finished trial begins the count anew."""
        crash(session, self, why)


def claim_one(session: Session, job_id: int, owner: str) -> Lease | None:
    """Take this one job; None when it has ended or somebody runs it."""
    job = session.get(Job, job_id)
    return None if job is None else claim_read(session, job, owner)


def claim_read(session: Session, job: Job, owner: str) -> Lease | None:
    """Take a job that was read in this transaction; None where it is not free any more."""
    if JOBS.fail_damaged(session, job) or not JOBS.is_free(job):
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


def _take(session: Session, job: Job, owner: str) -> Lease | None:
    spent = _spent_s(job, job.heartbeat_at)
    of_run = {"host": host_of(owner), "claimed_at": now(), "elapsed_s": spent}
    is_taken = JOBS.take(session, job, owner, **of_run)
    return Lease(job.id, owner, job.epoch) if is_taken else None


def _left(job: Job, state: str) -> dict[str, Any]:
    """The columns of a job that its run leaves in a state."""
    moment = now()
    return {
        "claimed_at": None,
        "elapsed_s": _spent_s(job, moment),
        "finished_at": None if state == "queued" else moment,
        **({"complete": False} if state == "failed" else {}),
    }


JOBS = LeasedTable(Job, "job", fault_of=damage, fail=fail, left=_left)

end, release, crash = JOBS.end, JOBS.release, JOBS.crash
holds, has_left, is_free = JOBS.holds, JOBS.has_left, JOBS.is_free
fail_damaged = JOBS.fail_damaged
retire, note_unserved = partial(giving_up.retire, JOBS), partial(giving_up.note_unserved, JOBS)


def _last_sign(job: Job) -> datetime | None:
    """Until when a run counts that is ended from outside: until now, if its owner lives."""
    if job.state == "running" and damage(job) is None and not JOBS.is_free(job):
        return now()
    return job.heartbeat_at


def _spent_s(job: Job, until: datetime | None) -> float:
    """Seconds of all runs, the present one up to a moment; a value that is garbled adds nothing."""
    is_number = isinstance(job.elapsed_s, float) and isfinite(job.elapsed_s)
    spent = job.elapsed_s if is_number else 0.0
    if isinstance(job.claimed_at, datetime) and isinstance(until, datetime):
        spent += max(0.0, (until - job.claimed_at).total_seconds())
    return spent


# Made once, since it goes with every trial.
_BEAT = (
    update(Job)
    .where(
        Job.id == bindparam("job_is"),
        Job.owner == bindparam("owner_is"),
        Job.epoch == bindparam("epoch_is"),
    )
    .values(heartbeat_at=bindparam("moment"))
)
_TRIAL = _BEAT.values(crashes=0)
