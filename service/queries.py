"""What is stored of a problem: its schedule, its script, its trials."""

from datetime import datetime

from sqlalchemy import ColumnElement, false, or_, select
from sqlalchemy.orm import Session

from kernels.problem import Problem
from kernels.toolchain import identity
from service.db import models


def find_fresh(
    session: Session, problem: Problem | str, target: str, toolchain: str
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
        )
    )
    return session.scalar(query)


def find_schedule(
    session: Session, problem: Problem | str, target: str, toolchain: str | None = None
) -> models.Schedule | None:
    """The best schedule under the present toolchain, else the newest under another.

    Args:
        session: an open session.
        problem: the problem, or its key.
        target: canonical.
        toolchain: what counts as present; None asks `kernels.toolchain`.

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
            models.Schedule.created_at.desc(),
        )
        .limit(1)
    )
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
