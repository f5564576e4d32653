"""The problems of a whole model, their states, and the order in which they ended.

The process that reports the end of a problem gives it the next number, which the database keeps.
So the order is the same for all who follow, and does not depend on the clocks of the hosts that
tune.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tilewise.schema.base import JobState, Json
from tilewise.service.db.models import ENDED, Job, Network, Plan, PlanCompletion, Problem, Schedule
from tilewise.service.db.rows import inserted, same_work
from tilewise.service.errors import DamagedError
from tilewise.service.results.schedules import find_schedules
from tilewise.service.results.stored import Lookup

TUNING, WAITING = "tuning", "waiting"
"""Phases of a plan that no worker has taken: its problems are tuned, or it could be taken."""


@dataclass(frozen=True)
class ModelProblem:
    """One problem of a model, as it is now.

    `found` is the object of the row. `job` is None if a stored schedule answered, whose time is
    `time_us`.
    """

    found: Mapping[str, Any]
    key: str
    state: JobState
    job: int | None
    time_us: float | None


@dataclass(frozen=True)
class PlanProblems:
    """The problems of a plan: those of the model, and those that differ from them in layout."""

    problems: tuple[ModelProblem, ...]
    variants: tuple[ModelProblem, ...]

    @property
    def every(self) -> tuple[ModelProblem, ...]:
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


NO_PARTS = PlanProblems((), ())


def parts_of(session: Session, plan: Plan) -> PlanProblems:
    """Return the problems of a plan as they are now, in its order."""
    found = (*plan.problems, *plan.variants)
    jobs = {job.id: job for job in session.scalars(select(Job).where(Job.id.in_(_jobs(plan))))}
    stored = _stored(session, plan.job, found)
    parts = []
    for one in found:
        key, job = key_of(one["problem"]), jobs.get(one["job"])
        time_us = stored[key].time_us if key in stored else None
        is_active = job is not None and job.state not in ENDED
        parts.append(_part(one, key, job, None if is_active else time_us))
    count = len(plan.problems)
    return PlanProblems(tuple(parts[:count]), tuple(parts[count:]))


def parts_of_model(session: Session, network: Network) -> list[ModelProblem]:
    """Return the problems of a model as they are now, in its order, each with its newest job."""
    job = network.job
    keys = [key_of(found["problem"]) for found in network.problems]
    newest = (
        select(func.max(Job.id))
        .join(Job.problem)
        .where(Problem.key.in_(keys), *same_work(Job, job, "problem_id"))
        .group_by(Job.problem_id)
    )
    jobs = {one.problem.key: one for one in session.scalars(select(Job).where(Job.id.in_(newest)))}
    stored = _stored(session, job, network.problems)
    return [
        _part(found, key, jobs.get(key), stored[key].time_us if key in stored else None)
        for found, key in zip(network.problems, keys, strict=True)
    ]


def _stored(session: Session, job: Job, found: Sequence[Json]) -> dict[str, Schedule]:
    """Return the schedules of the toolchain of a model's job, by key."""
    keys = [key_of(one["problem"]) for one in found]
    stored = find_schedules(session, keys, Lookup.of(job))
    return {key: row for key, row in stored.items() if row.toolchain_id == job.toolchain_id}


def _part(found: Json, key: str, job: Job | None, time_us: float | None) -> ModelProblem:
    number = None if job is None else job.id
    if job is not None and job.state not in ENDED:
        return ModelProblem(found, key, job.state, number, time_us)
    if time_us is not None:
        return ModelProblem(found, key, "done", number, time_us)
    # The schedule of a job that is done may be gone.
    state: JobState = "failed" if job is None or job.state == "done" else job.state
    return ModelProblem(found, key, state, number, None)


def is_tuned(session: Session, plan: Plan) -> bool:
    """Return whether all jobs of a plan have ended."""
    query = select(Job.id).where(Job.id.in_(_jobs(plan)), Job.state.not_in(ENDED))
    return session.scalar(query.limit(1)) is None


def phase_of(plan: Plan, parts: PlanProblems) -> str | None:
    """Return what is done for a plan now; None once it has ended."""
    if plan.job.state == "queued":
        return WAITING if parts.is_tuned else TUNING
    return plan.job.phase if plan.job.state == "running" else None


def state_of(plan: Plan, parts: PlanProblems) -> JobState:
    """Return the state of a plan as its user sees it: running once any job has begun."""
    if plan.job.state == "queued" and parts.has_begun:
        return "running"
    return plan.job.state


def state_of_model(parts: Sequence[ModelProblem]) -> JobState:
    """Return one state of all problems: running once any has begun, failed if any failed."""
    states = {part.state for part in parts}
    if states == {"queued"}:
        return "queued"
    if states & {"queued", "running"}:
        return "running"
    return next(state for state in ("failed", "cancelled", "done") if state in states)


def key_of(problem: str) -> str:
    """Return the key of a canonical problem, without a look at what it says."""
    return hashlib.sha256(problem.encode()).hexdigest()


def _jobs(plan: Plan) -> set[int]:
    found = (one["job"] for one in (*plan.problems, *plan.variants))
    return {number for number in found if number is not None}


def numbered(session: Session, plan_id: int, parts: PlanProblems) -> dict[int, ModelProblem]:
    """Return the numbered problems of a plan; raise DamagedError for a number of no problem."""
    every, found = parts.every, _places(session, plan_id)
    if not all(0 <= place < len(every) for place in found.values()):
        raise DamagedError(f"the numbers of plan {plan_id} name problems that it does not have")
    return {number: every[place] for number, place in found.items()}


def number_ended(session: Session, plan: Plan) -> None:
    """Number the problems that have ended and have no number yet; another process may be first."""
    known = _places(session, plan.id)
    every = parts_of(session, plan).every
    ended = (place for place, part in enumerate(every) if part.state in ENDED)
    new = (place for place in ended if place not in known.values())
    made = [
        PlanCompletion(plan_id=plan.id, number=following, part=place)
        for following, place in enumerate(new, max(known, default=-1) + 1)
    ]
    inserted(session, *made)  # or the other's numbers hold


def _places(session: Session, plan_id: int) -> dict[int, int]:
    """Return the place among all problems of each that has a number, by that number."""
    query = (
        select(PlanCompletion.number, PlanCompletion.part)
        .where(PlanCompletion.plan_id == plan_id)
        .order_by(PlanCompletion.number)
    )
    return {row.number: row.part for row in session.execute(query)}
