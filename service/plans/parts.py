"""The problems of a plan: what each has come to, and with that the plan."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.schema.base import JobState, PlanState
from tilewise.service.db import models
from tilewise.service.jobs.queue import ENDED
from tilewise.service.plans.rows import Json
from tilewise.service.results.schedules import find_schedules

TUNING, WAITING = "tuning", "waiting"
"""Phases of a plan that no worker has taken: its jobs run, or it could be taken."""


@dataclass(frozen=True)
class Part:
    """One problem of a plan, as it is now.

    Attributes:
        found: the problem, and as the model's also its count and its places, as the row has them.
        key: of the problem.
        state: of its job; done where a schedule is stored.
        job: its number; None where a stored schedule needed none.
        time_us: of the stored schedule; None before.
    """

    found: Mapping[str, Any]
    key: str
    state: JobState
    job: int | None
    time_us: float | None


@dataclass(frozen=True)
class Parts:
    """The problems of a plan: those of the model, and those that differ from them in layout."""

    problems: tuple[Part, ...]
    variants: tuple[Part, ...]

    @property
    def every(self) -> tuple[Part, ...]:
        """Both."""
        return (*self.problems, *self.variants)

    @property
    def is_tuned(self) -> bool:
        """Whether all jobs have ended."""
        return all(part.state in ENDED for part in self.every)

    @property
    def has_begun(self) -> bool:
        """Whether any job has been more than queued."""
        return any(part.state != "queued" for part in self.every)


NO_PARTS = Parts((), ())


def parts_of(session: Session, plan: models.Plan) -> Parts:
    """The problems of a plan as they are now, in its order; two queries."""
    found = (*plan.problems, *plan.variants)
    keys = [key_of(one["problem"]) for one in found]
    numbers = _jobs(found)
    jobs = {job.id: job for job in session.scalars(
        select(models.Job).where(models.Job.id.in_(numbers)))}  # fmt: skip
    toolchain = plan.toolchain.identity
    stored = find_schedules(session, keys, plan.target, toolchain, plan.cache)
    fresh = {key: row.time_us for key, row in stored.items() if row.toolchain.identity == toolchain}
    parts = [
        _part(one, key, jobs.get(one["job"]), fresh.get(key))
        for one, key in zip(found, keys, strict=True)
    ]
    count = len(plan.problems)
    return Parts(tuple(parts[:count]), tuple(parts[count:]))


def is_tuned(session: Session, plan: models.Plan) -> bool:
    """Whether all jobs of a plan have ended."""
    query = select(models.Job.id).where(
        models.Job.id.in_(_jobs((*plan.problems, *plan.variants))),
        models.Job.state.not_in(ENDED),
    )
    return session.scalar(query.limit(1)) is None


def phase_of(plan: models.Plan, parts: Parts) -> str | None:
    """What is done for a plan now; None once it has ended."""
    if plan.state == "queued":
        return WAITING if parts.is_tuned else TUNING
    return plan.phase if plan.state == "running" else None


def state_of(plan: models.Plan, parts: Parts) -> PlanState:
    """The state of a plan as who asked for it sees it: running once any job has begun."""
    if plan.state == "queued" and parts.has_begun:
        return "running"
    return plan.state


def key_of(problem: str) -> str:
    """The key of a canonical problem, without a look at what it says."""
    return hashlib.sha256(problem.encode()).hexdigest()


def _jobs(found: Sequence[Json]) -> Collection[int]:
    return {one["job"] for one in found if one["job"] is not None}


def _part(found: Json, key: str, job: models.Job | None, time_us: float | None) -> Part:
    number = None if job is None else job.id
    if job is not None and job.state not in ENDED:
        return Part(found, key, job.state, number, time_us)
    if time_us is not None:
        return Part(found, key, "done", number, time_us)
    state: JobState = "failed" if job is None or job.state == "done" else job.state
    return Part(found, key, state, number, None)
