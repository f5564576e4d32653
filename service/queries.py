"""What is stored of a problem: its schedule, its script, its trials."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, exists, false, or_, select
from sqlalchemy.orm import Session, aliased

from kernels.problem import Problem
from kernels.toolchain import identity
from search.records import CacheMode
from service.db import models

KEYS_AT_ONCE = 500  # of the variables that one statement of SQLite may have
TrialOfJob = tuple[models.Trial, models.Job]


def find_fresh(
    session: Session,
    problem: Problem | str,
    target: str,
    toolchain: str,
    cache: CacheMode = "hot",
) -> models.Schedule | None:
    """The best schedule of a problem (or its key) under exactly this toolchain."""
    query = (
        select(models.Schedule)
        .join(models.Schedule.problem)
        .join(models.Schedule.toolchain)
        .where(
            models.Problem.key == _key(problem),
            models.Schedule.target == target,
            models.Toolchain.identity == toolchain,
            models.Schedule.cache == cache,
        )
    )
    return session.scalar(query)


def find_schedule(
    session: Session,
    problem: Problem | str,
    target: str,
    toolchain: str | None = None,
    cache: CacheMode | None = None,
) -> models.Schedule | None:
    """The best schedule under the present toolchain, else the newest under another.

    Args:
        session: an open session.
        problem: the problem, or its key.
        target: canonical.
        toolchain: what counts as present; None asks `kernels.toolchain`.
        cache: how it was timed; None takes the hot one where there are both.

    Returns:
        The row; `is_stale` tells which of the two it is.
    """
    query = (
        select(models.Schedule)
        .join(models.Schedule.problem)
        .join(models.Schedule.toolchain)
        .where(models.Problem.key == _key(problem), models.Schedule.target == target)
        .order_by(*_best_first(toolchain))
        .limit(1)
    )
    if cache is not None:
        query = query.where(models.Schedule.cache == cache)
    return session.scalar(query)


def is_stale(row: models.Schedule, toolchain: str | None = None) -> bool:
    """Whether the schedule belongs to another toolchain than the present one."""
    return row.toolchain.identity != (toolchain or identity())


def find_script(
    session: Session,
    problem: Problem | str,
    target: str,
    flavor: str = "cpu",
    toolchain: str | None = None,
) -> models.Script | None:
    """The fastest script of the stored schedule that was proven; never one that was not."""
    schedule = find_schedule(session, problem, target, toolchain)
    return None if schedule is None else proven_script(session, schedule, flavor)


def proven_script(
    session: Session, schedule: models.Schedule, flavor: str = "cpu"
) -> models.Script | None:
    """The fastest proven script of this schedule."""
    query = (
        select(models.Script)
        .join(models.Proof, models.Proof.script_id == models.Script.id)
        .where(
            models.Script.schedule_id == schedule.id,
            models.Script.flavor == flavor,
            models.Proof.ok,
        )
        .order_by(models.Proof.gflops.desc().nulls_last(), models.Script.id)
        .limit(1)
    )
    return session.scalar(query)


def shown_proof(session: Session, schedule: models.Schedule) -> models.Proof | None:
    """The proof of the cpu script that is served, else the latest attempt that failed."""
    return _first_proof(session, schedule, of_flavor("cpu"))


def failed_proof(session: Session, schedule: models.Schedule, flavor: str) -> models.Proof | None:
    """The latest attempt at a script of a flavor that failed."""
    return _first_proof(session, schedule, models.Script.flavor == flavor, ~models.Proof.ok)


def _first_proof(
    session: Session, schedule: models.Schedule, *wanted: ColumnElement[bool]
) -> models.Proof | None:
    query = (
        select(models.Proof)
        .outerjoin(models.Proof.script)
        .where(models.Proof.schedule_id == schedule.id, *wanted)
        .order_by(
            models.Proof.ok.desc(), models.Proof.gflops.desc().nulls_last(), models.Proof.id.desc()
        )
        .limit(1)
    )
    return session.scalar(query)


def of_flavor(flavor: str) -> ColumnElement[bool]:
    """Proofs of scripts of a flavor; cpu ones also where not even a script came about."""
    absent = models.Proof.script_id.is_(None) if flavor == "cpu" else false()
    return or_(models.Script.flavor == flavor, absent)


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
    """Trials of all jobs, each with its job, in the order in which they were stored.

    A job that went on from another's trials has copies of them, which are not shown again.

    Args:
        session: an open session.
        problem: only of this problem (or its key).
        target: only on this one; canonical.
        state: only those that ended so.
        cache: only those that were timed so.
        after: continues from the trial with this id, the last one of the page before.
        limit: most rows; None gives all.
    """
    query = (
        select(models.Trial, models.Job)
        .join(models.Job, models.Job.id == models.Trial.job_id)
        .join(models.Job.problem)
        .where(~_is_copy())
        .order_by(models.Trial.id)
        .limit(limit)
    )
    if problem is not None:
        query = query.where(models.Problem.key == _key(problem))
    if target is not None:
        query = query.where(models.Job.target == target)
    if state is not None:
        query = query.where(models.Trial.state == state)
    if cache is not None:
        query = query.where(models.Job.cache == cache)
    if after is not None:
        query = query.where(models.Trial.id > after)
    return [(trial, job) for trial, job in session.execute(query)]


def _best_first(toolchain: str | None) -> tuple[ColumnElement[Any], ...]:
    """The order in which stored schedules answer: the present toolchain's, hot ones, new ones."""
    return (
        (models.Toolchain.identity == (toolchain or identity())).desc(),
        (models.Schedule.cache == "hot").desc(),
        models.Schedule.created_at.desc(),
    )


def find_schedules(
    session: Session,
    keys: Iterable[str],
    target: str,
    toolchain: str | None = None,
    cache: CacheMode | None = None,
) -> dict[str, models.Schedule]:
    """For each key of a problem that has one, what `find_schedule` finds, in few queries."""
    asked, found = sorted(keys), dict[str, models.Schedule]()
    for start in range(0, len(asked), KEYS_AT_ONCE):
        query = (
            select(models.Schedule)
            .join(models.Schedule.problem)
            .join(models.Schedule.toolchain)
            .where(
                models.Problem.key.in_(asked[start : start + KEYS_AT_ONCE]),
                models.Schedule.target == target,
            )
            .order_by(*_best_first(toolchain))
        )
        if cache is not None:
            query = query.where(models.Schedule.cache == cache)
        for row in session.scalars(query):
            found.setdefault(row.problem.key, row)
    return found


def _is_copy() -> ColumnElement[bool]:
    """Whether an earlier job for the same work has the same trial, by its number and moment."""
    first, earlier = aliased(models.Trial), aliased(models.Job)
    same_trial = exists().where(
        first.job_id == earlier.id,
        first.number == models.Trial.number,
        first.hash == models.Trial.hash,
        first.created_at == models.Trial.created_at,
    )
    same_work = exists().where(
        earlier.problem_id == models.Job.problem_id,
        earlier.target == models.Job.target,
        earlier.toolchain_id == models.Job.toolchain_id,
        earlier.id < models.Job.id,
        # Apart, so that the few jobs come first, and their trials are found by job and number.
        same_trial.correlate(models.Trial, earlier),
    )
    return same_work.correlate(models.Trial, models.Job)


def _key(problem: Problem | str) -> str:
    return problem if isinstance(problem, str) else problem.key
