"""Helpers: workers that try candidates of a job which another worker, its leader, runs.

A helper's token allows to join the run of the leader, to take candidates, and to say what came of
them. It is worth something in the search of that run alone.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import Select, exists, func, select
from sqlalchemy.orm import Session, aliased

from tilewise.service.db import models
from tilewise.service.db.base import is_sound
from tilewise.service.db.models import Job, Toolchain
from tilewise.service.errors import LeaseLostError
from tilewise.service.jobs import queue
from tilewise.service.runs import offers
from tilewise.service.runs.offers import OfferedJob

Of = models.Offer


def make(
    session: Session, worker: str, targets: Sequence[str], toolchain: str, driver: str
) -> OfferedJob | None:
    """Offer a worker the running, spread job with the fewest helpers; None if there is none."""
    query = _wanting(targets, toolchain).limit(1).with_for_update(of=Job, skip_locked=True)
    job = session.scalar(query)
    if job is None or not is_sound(job):
        return None
    return offers.give(session, job, worker, driver, "helper")


def is_wanted(session: Session, targets: Sequence[str], toolchain: str) -> bool:
    """Return whether `make` may find a job, without writing."""
    return session.scalar(_wanting(targets, toolchain).limit(1)) is not None


def _wanting(targets: Sequence[str], toolchain: str) -> Select[Job]:
    of_helper, of_leader = aliased(Of), aliased(Of)
    helpers = (
        select(func.count())
        .where(of_helper.job_id == Job.id, of_helper.role == "helper")
        .scalar_subquery()
    )
    has_begun = exists().where(
        of_leader.job_id == Job.id, of_leader.role == "leader", of_leader.epoch == Job.epoch
    )
    return (
        select(Job)
        .join(Job.toolchain)
        .where(Job.target.in_(targets), Toolchain.identity == toolchain)
        .where(Job.state == "running", Job.phase == "search", Job.spread > 1, has_begun)
        .where(helpers < Job.spread - 1)
        .order_by(helpers, Job.id)
    )


def recall(session: Session, workers: Collection[str], count: int) -> list[str]:
    """Recall helpers until `count` of these workers will be free; return their addresses."""
    query = select(Of).where(Of.role == "helper", Of.worker.in_(workers)).order_by(Of.id.desc())
    rows = list(session.scalars(query.with_for_update()))
    missing = count - sum(row.is_recalled for row in rows)
    chosen = [row for row in rows if not row.is_recalled][: max(0, missing)]
    for row in chosen:
        row.is_recalled = True
    return [row.worker for row in chosen]


def join(session: Session, row: models.Offer, owner: str) -> Job:
    """Join the run of a job as a helper, which may be repeated.

    Raises LeaseLostError if the search is over, needs no help, or another process joined with this
    token.
    """
    job = queue.get(session, row.job_id)
    if not is_needed(job, row) or row.owner not in (None, owner):
        raise LeaseLostError(f"job {row.job_id} needs no help, or not that of this process")
    row.owner, row.epoch = owner, job.epoch
    return job


def is_needed(job: Job, row: models.Offer) -> bool:
    """Return whether the run that a helper has joined or may join still needs help."""
    is_searching = job.state == "running" and job.phase == "search"
    return is_searching and not row.is_recalled and row.epoch in (None, job.epoch)


def count(session: Session, job_id: int, epoch: int) -> int:
    """Return the number of helpers of a run."""
    query = select(func.count()).where(
        Of.job_id == job_id, Of.role == "helper", Of.epoch == epoch, Of.is_recalled.is_(False)
    )
    return session.scalar(query) or 0
