"""Offers: the assignment of a job to a worker, and the permissions of its token.

A driver makes an offer and gives its token to the worker. The holder of the token may begin a run
of this one job and write what that run does. A new offer makes the token before it worth nothing,
so a worker that was given up, and a driver that was stopped, write nothing when they wake.
Offers of helpers are `tilewise.service.runs.helper_offers`'s; the shared code is here.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, and_, delete, or_, select, update
from sqlalchemy.orm import Session

from tilewise.service.db import models
from tilewise.service.db.base import is_sound, now
from tilewise.service.db.models import Candidate, Job, JobKind, OfferRole, Toolchain
from tilewise.service.db.rows import inserted
from tilewise.service.db.tokens import RANDOM_BYTES, digest
from tilewise.service.errors import LeaseLostError, UnknownTokenError
from tilewise.service.host.process_identity import is_dead
from tilewise.service.jobs import claims, lease
from tilewise.service.jobs.lease import Lease

PREFIX = "twr_"
DRIVER_LOST_AFTER = timedelta(seconds=15)
BEAT_AFTER = timedelta(seconds=5)


@dataclass(frozen=True)
class OfferedJob:
    """A job that was given to a worker; the database has only the digest of the token."""

    job_id: int
    worker: str
    token: str
    kind: JobKind
    target: str
    role: OfferRole = "leader"


def make(
    session: Session, worker: str, targets: Sequence[str], toolchain: str, driver: str
) -> OfferedJob | None:
    """Offer a worker the oldest free job that it can run; None if there is none.

    None too if the worker has an offer already. `driver` is the process that makes the offer.
    """
    job = _next_job(session, targets, toolchain)
    return None if job is None else give(session, job, worker, driver, "leader")


def give(
    session: Session, job: Job, worker: str, driver: str, role: OfferRole
) -> OfferedJob | None:
    """Offer a job to a worker; return None if another driver was first with either."""
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    made = models.Offer(
        job_id=job.id, digest=digest(token), driver=driver, worker=worker, role=role
    )
    if not inserted(session, made):
        return None
    return OfferedJob(job.id, worker, token, job.kind, job.target, role)


def _next_job(session: Session, targets: Sequence[str], toolchain: str) -> Job | None:
    for job in session.scalars(_open_jobs(targets, toolchain)):
        if not lease.fail_damaged(session, job) and _can_begin(session, job):
            return job
    return None


def has_job(session: Session, targets: Sequence[str], toolchain: str) -> bool:
    """Return whether `make` may find a job, without writing."""
    return waiting(session, targets, toolchain) > 0


def waiting(session: Session, targets: Sequence[str], toolchain: str) -> int:
    """Return how many jobs `make` may find."""
    jobs = session.scalars(_open_jobs(targets, toolchain))
    return sum(lease.fault_of(job) is not None or _can_begin(session, job) for job in jobs)


def _can_begin(session: Session, job: Job) -> bool:
    return lease.is_free(job) and claims.is_ready(session, job)


def _open_jobs(targets: Sequence[str], toolchain: str) -> Select[Job]:
    """Plans first: a user waits for them, and they are short. Ranges never travel."""
    return (
        select(Job)
        .join(Job.toolchain)
        .outerjoin(models.Offer, and_(models.Offer.job_id == Job.id, models.Offer.role == "leader"))
        .where(Job.target.in_(targets), Toolchain.identity == toolchain, Job.kind != "range")
        .where(Job.state.in_(("queued", "running")), models.Offer.id.is_(None))
        .order_by(Job.kind == "recheck", Job.kind, Job.id)
    )


def taken(session: Session) -> dict[str, OfferRole]:
    """Return the roles of the workers that have a job, by address."""
    rows = session.execute(select(models.Offer.worker, models.Offer.role))
    return {row.worker: row.role for row in rows}


def find(
    session: Session,
    job_id: int,
    token: str,
    *,
    lock: bool = False,
    role: OfferRole | None = "leader",
) -> models.Offer:
    """Return the offer of a job whose token is shown; raise UnknownTokenError.

    `lock` makes others wait until the transaction ends. `role` None accepts any.
    """
    query = select(models.Offer).where(models.Offer.digest == digest(token))
    row = session.scalar(query.with_for_update() if lock else query)
    if row is None or not is_sound(row) or row.job_id != job_id or role not in (None, row.role):
        raise _unknown(job_id)
    return row


def _unknown(job_id: int) -> UnknownTokenError:
    return UnknownTokenError(f"the token is not one for job {job_id}, or not any more")


def is_known(session: Session, token: str) -> bool:
    """Return whether a token belongs to any offer."""
    query = select(models.Offer.id).where(models.Offer.digest == digest(token))
    return session.scalar(query) is not None


def begin(session: Session, row: models.Offer, owner: str) -> Lease:
    """Begin the run of an offer, which may be repeated.

    Raises LeaseLostError if the job has ended or another process runs it.
    """
    if row.epoch is not None:
        held = held_by(row)
        if row.owner == owner and lease.holds(session, held):
            return held  # the first answer did not arrive
        raise LeaseLostError(f"job {row.job_id} was begun with this token already")
    begun = lease.claim_one(session, row.job_id, owner)
    if begun is None:
        raise LeaseLostError(f"job {row.job_id} has ended, or another process runs it")
    row.owner, row.epoch = owner, begun.epoch
    session.execute(delete(Candidate).where(Candidate.job_id == row.job_id))
    return begun


def held_by(row: models.Offer) -> Lease:
    """Return the lease of the run that began with an offer; raise LeaseLostError if none did."""
    if row.owner is None or row.epoch is None:
        raise LeaseLostError(f"job {row.job_id} has not begun with this token; begin it first")
    return Lease(row.job_id, row.owner, row.epoch)


@dataclass(frozen=True)
class Pulse:
    """Whether a run goes on, and its lease if a heartbeat is due; runs not yet begun may go on."""

    goes_on: bool
    due: Lease | None


def pulse(session: Session, job_id: int, token: str) -> Pulse:
    """Return the pulse of an offer in one query, since every run polls twice a second.

    Raises UnknownTokenError.
    """
    offer = models.Offer
    helps = and_(offer.role == "helper", Job.phase == "search", offer.is_recalled.is_(False))
    query = (
        select(
            or_(offer.role == "leader", helps),
            offer.role,
            offer.owner,
            offer.epoch,
            Job.state,
            Job.owner,
            Job.epoch,
            Job.heartbeat_at,
        )
        .join(Job, Job.id == offer.job_id)
        .where(offer.digest == digest(token), offer.job_id == job_id)
    )
    found = session.execute(query).first()
    if found is None:
        raise _unknown(job_id)
    may, role, owner, epoch, state, *run, seen_at = found
    if not may or role == "helper":
        return Pulse(bool(may) and state == "running" and epoch in (None, run[1]), None)
    if epoch is None or owner is None:
        return Pulse(state in ("queued", "running"), None)
    if state != "running" or run != [owner, epoch]:
        return Pulse(False, None)
    is_due = not isinstance(seen_at, datetime) or seen_at < now() - BEAT_AFTER
    return Pulse(True, Lease(job_id, owner, epoch) if is_due else None)


def beat(session: Session, driver: str, digests: Collection[str]) -> set[str]:
    """Show that a driver lives; which of its offers there still are, by digest."""
    statement = (
        update(models.Offer)
        .where(models.Offer.driver == driver, models.Offer.digest.in_(digests))
        .values(seen_at=now())
        .returning(models.Offer.digest)
    )
    options: dict[str, Any] = {"synchronize_session": False}
    return set(session.scalars(statement.execution_options(**options)))


def settle(session: Session, digest_: str, why: str | None) -> None:
    """Withdraw an offer, if that was not done; end its run.

    `why` says how the worker died, which counts against the job; None does not count.
    """
    query = select(models.Offer).where(models.Offer.digest == digest_).with_for_update()
    row = session.scalar(query)
    if row is None:
        return
    if row.role == "leader":
        session.execute(delete(Candidate).where(Candidate.job_id == row.job_id))
    if row.role == "leader" and row.epoch is not None:
        held = held_by(row)
        if why is None:
            lease.release(session, held)
        elif lease.holds(session, held):
            lease.crash(session, held, why)
    session.delete(row)


def abandoned(session: Session, driver: str) -> list[str]:
    """Return the digests of offers of drivers that died or missed their heartbeats."""
    rows = session.scalars(select(models.Offer).where(models.Offer.driver != driver))
    late = now() - DRIVER_LOST_AFTER
    return [
        row.digest for row in rows if not is_sound(row) or row.seen_at < late or is_dead(row.driver)
    ]
