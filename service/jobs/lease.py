"""Leases of jobs (`tilewise.service.leases`), and the time that all runs of a job take.

What is the same for every leased table is in `JOBS`.

Every write of a run stores the seconds of all runs so far, by a clock that nobody sets, and when it
did (`claimed_at`). What follows until the next write, or until a run that died is noticed, is told
by the clock of the wall, which may be set meanwhile: no more of it counts than a lease lasts.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import isfinite
from typing import Any

from sqlalchemy import bindparam, update
from sqlalchemy.orm import Session

from tilewise.service.db.base import damage, now
from tilewise.service.db.models import Job
from tilewise.service.errors import LeaseLostError
from tilewise.service.host.process_identity import host_of
from tilewise.service.leases import giving_up
from tilewise.service.leases.table import LEASE, LeasedTable

MOST_CLOCKS = 1024
_clocks: dict[tuple[int, int], tuple[float, float]] = {}
"""By job and epoch: seconds of the job at a moment of `time.monotonic`, and that moment."""


@dataclass(frozen=True)
class Lease:
    """One run of a job, as the writes of that run name it.

    Attributes:
        job_id: the job.
        owner: the process that runs it, from `tilewise.service.host.process_identity.me`.
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
        "spent": _clocked_s(session, held),
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
    if not JOBS.take(session, job, owner, **of_run):
        return None
    _start_clock((job.id, job.epoch), spent)
    return Lease(job.id, owner, job.epoch)


def _left(job: Job, state: str) -> dict[str, Any]:
    """The columns of a job that its run leaves in a state."""
    moment, key = now(), (job.id, job.epoch)
    return {
        "claimed_at": None,
        "elapsed_s": _read_clock(key) if key in _clocks else _spent_s(job, moment),
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
    """Return the seconds since the last write of a run, by the clock of the wall."""
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
