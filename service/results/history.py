"""Results that are no longer the best, or never were, and results to measure again."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from tilewise.search.final_benchmark.quality import JudgedSpeed, Quality, quality_of
from tilewise.search.records import Measurement
from tilewise.service.db import models
from tilewise.service.db.base import is_sound, now
from tilewise.service.db.rows import same_work
from tilewise.service.results import integrity
from tilewise.service.results.stored import ResultKey

REST = timedelta(
    minutes=10
)  # before a noisy result is measured again; twice as long after each search
MOST_DOUBLINGS = 8

_SAME = tuple(
    column.key
    for column in models.Schedule.__table__.columns
    if column.key != "id" and column.key in models.PastSchedule.__table__.columns
)
"""The columns that a stored result and a past one share."""


def measured_of(row: Any) -> JudgedSpeed:
    """Return the speed and quality of a result: a stored or past row, or a line of an archive."""
    measurement = Measurement(row.gflops, (row.low, row.high), row.time_us)
    samples = row.measured.get("samples") if isinstance(row.measured, dict) else None
    return JudgedSpeed(
        measurement, quality_of(measurement, samples if isinstance(samples, int) else 0)
    )


def quality(row: Any) -> Quality:
    """Return the quality of a result, as `measured_of` reads it."""
    return measured_of(row).quality


def supersede(session: Session, row: models.Schedule) -> None:
    """Move a result that is about to be replaced to the history, unless it is damaged."""
    if integrity.is_whole(row):
        values = {name: getattr(row, name) for name in _SAME}
        session.add(models.PastSchedule(**values, was_best=True, ended_at=now()))


def add_unkept(session: Session, new: models.Schedule) -> None:
    """Store a measured result that does not replace the stored one.

    `new` is not part of the session.
    """
    values: dict[str, Any] = {name: getattr(new, name) for name in _SAME}
    values["digest"] = integrity.result_digest(ResultKey.of(new), new)
    session.add(models.PastSchedule(**values, was_best=False, ended_at=new.created_at))


def latest(session: Session, row: models.Schedule) -> models.PastSchedule | None:
    """Return the newest past result of a stored result's work; None for none that can be read."""
    query = select(models.PastSchedule).where(*same_work(models.PastSchedule, row))
    return next(filter(is_sound, session.scalars(_newest_first(query).limit(_LOOKED_AT))), None)


def of_job(session: Session, job: models.Job) -> models.PastSchedule | None:
    """Return the past result that a job has measured; None if it is the stored one, or damaged.

    A result may return from an archive of the time when it was best; the first entry is the job's
    own.
    """
    past = models.PastSchedule
    query = select(past).where(*same_work(past, job), past.job_id == job.id).order_by(past.id)
    return next(filter(is_sound, session.scalars(query.limit(_LOOKED_AT))), None)


_LOOKED_AT = 10  # entries, of which the newest may be damaged


def of_problem(session: Session, key: str, limit: int) -> list[models.PastSchedule]:
    """Return the past results of a problem that can be read, newest first."""
    query = (
        select(models.PastSchedule)
        .join(models.PastSchedule.problem)
        .where(models.Problem.key == key)
    )
    return list(filter(is_sound, session.scalars(_newest_first(query).limit(limit))))


def _newest_first(query: Select[models.PastSchedule]) -> Select[models.PastSchedule]:
    return query.order_by(models.PastSchedule.ended_at.desc(), models.PastSchedule.id.desc())


def to_retime(session: Session, targets: Sequence[str], toolchain: str) -> models.Schedule | None:
    """Return a noisy result that is due to be measured again, or None."""
    row = models.Schedule
    query = (
        select(row.id, row.gflops, row.low, row.high, row.time_us, row.measured)
        .join(row.toolchain)
        .where(models.Toolchain.identity == toolchain, row.target.in_(targets))
        .order_by(row.created_at, row.id)
    )
    for found in session.execute(query):
        if _is_noisy(found):
            stored = session.get_one(row, found.id)
            if integrity.is_whole(stored) and _is_due(session, stored):
                return stored
    return None


def _is_noisy(found: Any) -> bool:
    """Whether some columns are those of a noisy result; damaged ones are none."""
    speed = (found.gflops, found.low, found.high, found.time_us)
    is_read = all(isinstance(value, float) for value in speed)
    return is_read and quality(found) == "noisy"


def _is_due(session: Session, row: models.Schedule) -> bool:
    """Whether its last search is long enough ago: the longer, the more there were."""
    job = models.Job
    query = select(func.count(), func.max(job.created_at)).where(*same_work(job, row))
    searches, last = session.execute(query).one()
    rest = REST * 2 ** min(max(searches - 1, 0), MOST_DOUBLINGS)
    latest = max(last, row.created_at) if isinstance(last, datetime) else row.created_at
    return bool(now() - latest >= rest)
