"""What is stored of a problem: its schedule, its script, its trials."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, bindparam, exists, func, select
from sqlalchemy.orm import Session, aliased, contains_eager

from kernels.problem import Problem
from kernels.system.toolchain import identity
from search.records import CacheMode
from service.db import models
from service.results import integrity, stored
from service.results.stored import StoredProof, StoredScript, Work, best_first, in_parts

TrialOfJob = tuple[models.Trial, models.Job]

# Made once: to put one together takes longer than SQLite takes to answer it.
_SCHEDULES = (
    select(models.Schedule)
    .join(models.Schedule.problem)
    .join(models.Schedule.toolchain)
    .options(contains_eager(models.Schedule.problem), contains_eager(models.Schedule.toolchain))
)
_FRESH = _SCHEDULES.where(
    models.Problem.key == bindparam("key"),
    models.Schedule.target == bindparam("target"),
    models.Toolchain.identity == bindparam("toolchain"),
    models.Schedule.cache == bindparam("cache"),
)


@dataclass(frozen=True)
class ServedScript:
    """The best schedule of a problem, and its proven script.

    Attributes:
        problem: canonical.
        stale: whether it belongs to another toolchain than the present one.
        script: the fastest of those that were proven, None when none was.
    """

    problem: str
    stale: bool
    script: StoredScript | None


def find_fresh(
    session: Session,
    problem: Problem | str,
    target: str,
    toolchain: str,
    cache: CacheMode = "hot",
) -> models.Schedule | None:
    """The best schedule of a problem (or its key) under exactly this toolchain."""
    given = {"key": _key(problem), "target": target, "toolchain": toolchain, "cache": cache}
    return session.scalar(_FRESH, given)


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
        toolchain: what counts as present; None asks `kernels.system.toolchain`.
        cache: how it was timed; None takes the hot one where there are both.

    Returns:
        The row; `is_stale` tells which of the two it is.
    """
    query = (
        _SCHEDULES.where(models.Problem.key == _key(problem), models.Schedule.target == target)
        .order_by(*best_first(toolchain or identity()))
        .limit(1)
    )
    if cache is not None:
        query = query.where(models.Schedule.cache == cache)
    return session.scalar(query)


def is_stale(row: models.Schedule, toolchain: str | None = None) -> bool:
    """Whether the schedule belongs to another toolchain than the present one."""
    return row.toolchain.identity != (toolchain or identity())


def served_script(
    session: Session,
    problem: Problem | str,
    target: str,
    flavor: str = "cpu",
    toolchain: str | None = None,
) -> ServedScript | None:
    """The script of what `find_schedule` finds, in one query; None where it finds nothing.

    Args:
        session: an open session.
        problem: the problem, or its key.
        target: canonical.
        flavor: of the script.
        toolchain: what counts as present; None asks `kernels.system.toolchain`.

    Raises:
        TamperedError: what is stored is not what was proven.
    """
    present = toolchain or identity()
    found = stored.best_proof(session, _key(problem), target, flavor, present)
    if found is None:
        return None
    work, proof = found
    return ServedScript(work.canonical, work.toolchain != present, _proven(work, proof))


def find_script(
    session: Session,
    problem: Problem | str,
    target: str,
    flavor: str = "cpu",
    toolchain: str | None = None,
) -> StoredScript | None:
    """The fastest script of the stored schedule that was proven; never one that was not.

    Raises:
        TamperedError: what is stored is not what was proven.
    """
    found = served_script(session, problem, target, flavor, toolchain)
    return None if found is None else found.script


def proven_script(
    session: Session, schedule: models.Schedule, flavor: str = "cpu"
) -> StoredScript | None:
    """The fastest proven script of this schedule.

    Raises:
        TamperedError: what is stored is not what was proven.
    """
    return _proven(Work.of(schedule), stored.fastest_proof(session, schedule.id, flavor))


def failed_proof(session: Session, schedule: models.Schedule, flavor: str) -> StoredProof | None:
    """The latest attempt at a script of a flavor that failed.

    Raises:
        TamperedError: what is stored is not what was found.
    """
    found = stored.latest_failure(session, schedule.id, flavor)
    if found is not None:
        integrity.check_proof(Work.of(schedule), found)
    return found


def trial_counts(session: Session, job_ids: Collection[int]) -> dict[int, dict[str, int]]:
    """For each of some jobs, how many trials were asked for, and how those that ended did."""
    found: dict[int, dict[str, int]] = {}
    for ids in in_parts(job_ids):
        asked = select(models.Job.id, models.Job.trials).where(models.Job.id.in_(ids))
        ended = (
            select(models.Trial.job_id, models.Trial.state, func.count())
            .join(models.Job, models.Job.id == models.Trial.job_id)
            .where(models.Trial.job_id.in_(ids))
            .group_by(models.Trial.job_id, models.Trial.state)
        )
        for job_id, number in session.execute(asked):
            found[job_id] = {"asked": number, "timed": 0, "pruned": 0, "failed": 0}
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


def find_schedules(
    session: Session,
    keys: Iterable[str],
    target: str,
    toolchain: str | None = None,
    cache: CacheMode | None = None,
) -> dict[str, models.Schedule]:
    """For each key of a problem that has one, what `find_schedule` finds, in few queries."""
    found: dict[str, models.Schedule] = {}
    for asked in in_parts(set(keys)):
        query = _SCHEDULES.where(
            models.Problem.key.in_(asked),
            models.Schedule.target == target,
        ).order_by(*best_first(toolchain or identity()))
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


def _proven(work: Work, proof: StoredProof | None) -> StoredScript | None:
    """The script of a proof, once both are found to be what was stored."""
    if proof is None:
        integrity.check_work(work)
        return None
    integrity.check_proof(work, proof)
    return proof.script


def _key(problem: Problem | str) -> str:
    return problem if isinstance(problem, str) else problem.key
