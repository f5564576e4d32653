"""What is stored of a problem: its schedule, its script, its trials."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from kernels.problem import Problem
from kernels.toolchain import identity
from search.records import CacheMode
from service.db import models


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
        .order_by(
            (models.Toolchain.identity == (toolchain or identity())).desc(),
            (models.Schedule.cache == "hot").desc(),
            models.Schedule.created_at.desc(),
        )
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
    """The proof of the script that is served, else the latest attempt that failed."""
    query = (
        select(models.Proof)
        .where(models.Proof.schedule_id == schedule.id)
        .order_by(
            models.Proof.ok.desc(), models.Proof.gflops.desc().nulls_last(), models.Proof.id.desc()
        )
        .limit(1)
    )
    return session.scalar(query)


def list_trials(session: Session, problem: Problem, target: str) -> list[models.Trial]:
    """Every trial of the problem on the target, the oldest job first.

    A job that went on from another's trials has copies of them, which are not shown again.
    """
    query = (
        select(models.Trial)
        .join(models.Job, models.Job.id == models.Trial.job_id)
        .join(models.Problem, models.Problem.id == models.Job.problem_id)
        .where(models.Problem.key == problem.key, models.Job.target == target)
        .order_by(models.Trial.job_id, models.Trial.number)
    )
    shown: dict[tuple[str, datetime], models.Trial] = {}
    for trial in session.scalars(query):
        shown.setdefault((trial.hash, trial.created_at), trial)
    return list(shown.values())


def _key(problem: Problem | str) -> str:
    return problem if isinstance(problem, str) else problem.key
