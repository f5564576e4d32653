"""Trials of all jobs, counted and listed."""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.orm import Session, aliased

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.search.records import RECHECKED, CacheMode
from tilewise.service.db import models
from tilewise.service.db.rows import given, same_work
from tilewise.service.faults import tell_once
from tilewise.service.results.schedules import key_of
from tilewise.service.results.stored import among

TrialOfJob = tuple[models.Trial, models.Job]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tried:
    """A schedule that a search has timed, with its median time."""

    hash: str
    schedule: Schedule
    time_us: float


def trials_for_same_work(
    session: Session, best: models.Schedule, states: Collection[str]
) -> Iterator[Tried]:
    """Yield the trials that were timed for the same work as a stored result, fastest first.

    Damaged ones are left out.
    """
    trial, job = models.Trial, models.Job
    query = (
        select(trial.hash, trial.steps, trial.time_us)
        .join(job, job.id == trial.job_id)
        .where(*same_work(job, best), trial.origin != RECHECKED)
        .where(trial.state.in_(states), trial.time_us.is_not(None))
        .order_by(trial.time_us)
    )
    for hashed, steps, time_us in session.execute(query):
        if not isinstance(steps, list) or not isinstance(time_us, float):
            continue
        try:
            yield Tried(hashed, Schedule.from_json(steps), time_us)
        except KernelsError as error:
            tell_once(log, f"trial {hashed} of {best.problem.canonical} is damaged: {error}")


def trial_counts(session: Session, job_ids: Collection[int]) -> dict[int, dict[str, int]]:
    """Return the requested trials of some jobs, and how many ended in each way."""
    requested = select(models.Job.id, models.Job.trials).where(
        among(session, models.Job.__table__.c.id, job_ids)
    )
    ended = (
        select(models.Trial.job_id, models.Trial.state, func.count())
        .join(models.Job, models.Job.id == models.Trial.job_id)
        .where(among(session, models.Trial.__table__.c.job_id, job_ids))
        .group_by(models.Trial.job_id, models.Trial.state)
    )
    found = {
        job_id: {"asked": number, "timed": 0, "pruned": 0, "failed": 0}
        for job_id, number in session.execute(requested)
    }
    for job_id, state, number in session.execute(ended):
        found[job_id][state] = number
    return found


def find_trials(
    session: Session,
    *,
    problem: Problem | str | None = None,
    target: str | None = None,
    state: str | None = None,
    cache: CacheMode | None = None,
    after: int | None = None,
    limit: int | None = None,
) -> list[TrialOfJob]:
    """Return trials of all jobs, each with its job, in the order in which they were stored.

    Copies that a job took over from another are not repeated. `after` is the id of the last trial
    of the page before.
    """
    query = (
        select(models.Trial, models.Job)
        .join(models.Job, models.Job.id == models.Trial.job_id)
        .join(models.Job.problem)
        .where(
            ~_is_copy(),
            models.Trial.origin != RECHECKED,
            *given(
                (models.Problem.key, problem and key_of(problem)),
                (models.Job.target, target),
                (models.Trial.state, state),
                (models.Job.cache, cache),
            ),
        )
        .order_by(models.Trial.id)
        .limit(limit)
    )
    if after is not None:
        query = query.where(models.Trial.id > after)
    return [(trial, job) for trial, job in session.execute(query)]


def _is_copy() -> ColumnElement[bool]:
    """Whether an earlier job for the same work has the same trial, by its number and moment."""
    first, earlier = aliased(models.Trial), aliased(models.Job)
    # A value rather than an EXISTS: of one PostgreSQL may make a table of all trials, for one page.
    same_trial = (
        select(first.id)
        .where(
            first.job_id == earlier.id,
            first.number == models.Trial.number,
            first.hash == models.Trial.hash,
            first.created_at == models.Trial.created_at,
        )
        .limit(1)
        .correlate(models.Trial, earlier)
        .scalar_subquery()
    )
    is_of_same_work = exists().where(
        *same_work(earlier, models.Job, "cache"),
        earlier.id < models.Job.id,
        # Apart, so that the few jobs come first, and their trials are found by job and number.
        same_trial.is_not(None),
    )
    return is_of_same_work.correlate(models.Trial, models.Job)
