"""Retention: thin the samples of old trials and delete expired rows.

Best schedules, their proofs and scripts, and the trials of the jobs that found them stay as they
are, and so do plans of models that are done; those that failed or were cancelled go once they are
old enough, and so do results that never were the best. Those that were stay in
the history, with the trials of their jobs as of any other.
Of every other trial that is old enough some samples stay, evenly by rank, with the smallest
and the largest: its median and its spread can be seen as before. All else of a trial stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Engine, delete, exists, func, literal, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from tilewise.service.db import models
from tilewise.service.db.base import Base, now
from tilewise.service.db.driver_errors import translate
from tilewise.service.db.session import Sessions, reading, shown, writing
from tilewise.service.db.trials import pack_samples, unpack_samples
from tilewise.service.jobs import registry
from tilewise.service.jobs.idempotency import KEPT

ROWS_AT_ONCE = 500
BYTES = 8  # of a sample
LEAST_KEPT = 3


@dataclass(frozen=True)
class Pruned:
    """What was deleted, or would be; `bytes` are those of the dropped `samples`."""

    trials: int
    samples: int
    bytes: int
    keys: int
    workers: int
    plans: int
    unkept_results: int


def prune(sessions: Sessions, older_than: timedelta, keep: int, *, dry_run: bool = False) -> Pruned:
    """Thin the samples of old trials and delete expired rows.

    It can run next to a service, in transactions of a few hundred rows, and be interrupted. `keep`
    is the number of samples of a trial, at least `LEAST_KEPT`. `dry_run` only counts.
    """
    before, kept = now() - older_than, max(keep, LEAST_KEPT)
    trials = dropped = last = 0
    while True:
        with (reading if dry_run else writing)(sessions) as session:
            rows = _old(session, before, kept, last)
            for number, samples in rows:
                try:
                    thinned = thin(unpack_samples(samples), kept)
                except (TypeError, ValueError):  # a damaged row stays as it is
                    continue
                trials, dropped = trials + 1, dropped + len(samples) // BYTES - len(thinned)
                if not dry_run:
                    row = update(models.Trial).where(models.Trial.id == number)
                    taken = len(samples) // BYTES
                    session.execute(row.values(samples=pack_samples(thinned), samples_taken=taken))
        if not rows:
            break
        last = rows[-1][0]
    key, job, past = models.IdempotencyKey, models.Job, models.PastSchedule
    is_over = (job.kind == "model") & job.state.in_(("failed", "cancelled"))
    forget = partial(_forget, sessions, dry_run=dry_run)
    return Pruned(
        trials,
        dropped,
        dropped * BYTES,
        keys=forget(key, key.created_at < now() - KEPT),
        workers=forget(models.Worker, registry.is_gone()),
        plans=forget(job, is_over, job.finished_at < before),
        unkept_results=forget(past, ~past.was_best, past.ended_at < before),
    )


def give_back(engine: Engine) -> None:
    """Return the space of deleted rows to the disk, which takes a while, and a lock on SQLite.

    Raises DatabaseError, as on a full disk.
    """
    connection = engine.raw_connection()
    try:
        if engine.dialect.name == "postgresql":
            driver: Any = connection.driver_connection
            driver.autocommit = True
        connection.cursor().execute("VACUUM")
    except engine.dialect.loaded_dbapi.Error as error:
        raise translate(DBAPIError("VACUUM", None, error), shown(engine.url)) from error
    finally:
        connection.invalidate()
        connection.close()


def thin(samples: Sequence[float], keep: int) -> tuple[float, ...]:
    """Return `keep` of the samples, evenly by rank, with the least, the median and the most.

    An even `keep` returns one more, for the median.
    """
    ranked = sorted(samples)
    kept = keep if keep % 2 else keep + 1
    if len(ranked) <= kept:
        return tuple(samples)
    last = len(ranked) - 1
    middle = last / 2
    ranks = {round(index * last / (kept - 1)) for index in range(kept)}
    # The median of an even number of samples is between the two in the middle.
    ranks |= {int(middle), int(middle + 0.5)}
    return tuple(ranked[rank] for rank in sorted(ranks))


def _old(session: Session, before: datetime, keep: int, after: int) -> list[tuple[int, bytes]]:
    trial = models.Trial
    query = (
        select(trial.id, trial.samples)
        .where(
            trial.id > after,
            trial.created_at < before,
            trial.samples_taken.is_(None),
            func.length(trial.samples) > BYTES * (keep + LEAST_KEPT),
            ~exists().where(models.Schedule.job_id == trial.job_id),  # no evidence of a result
        )
        .order_by(trial.id)
        .limit(ROWS_AT_ONCE)
    )
    found: list[tuple[int, bytes]] = [(row.id, row.samples) for row in session.execute(query)]
    return found


def _forget(sessions: Sessions, model: type[Base], *old: ColumnElement[bool], dry_run: bool) -> int:
    """Delete the rows that meet all conditions; return how many there are."""
    if dry_run:
        with reading(sessions) as session:
            return session.scalar(select(func.count()).select_from(model).where(*old)) or 0
    with writing(sessions) as session:
        return len(session.execute(delete(model).where(*old).returning(literal(1))).all())
