"""Plans that were asked for: their jobs, what each of their problems has come to, lists of them."""

import hashlib
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, undefer

from kernels.mlir.frontend.graph import Graph
from kernels.problem import parse_problem
from kernels.system.typed_json import to_json
from search.networks.variants import problems_of
from search.records import TuneRequest
from service.db import models
from service.db.base import damage
from service.db.models import JobState, PlanLayouts, PlanState
from service.db.rows import toolchain_row
from service.errors import DamagedError, NotFoundError, TooManyJobsError
from service.jobs import queue
from service.jobs.queue import ENDED, Submitter
from service.results.schedules import find_schedules

Json = dict[str, Any]
ACTIVE: tuple[PlanState, ...] = ("queued", "running")
TUNING, WAITING = "tuning", "waiting"
"""Phases of a plan that no worker has taken: its jobs run, or it could be taken."""
LEVEL = 1  # of zlib: dense weights in hex shrink to about half at any level


@dataclass(frozen=True)
class Wanted:
    """A plan to make.

    Attributes:
        sha256: of the module, hex.
        name: what the model is called.
        module: compressed, by `compressed`.
        graph: of the module.
        layouts: which are offered.
        target: canonical.
        request: how hard to search for each problem.
    """

    sha256: str
    name: str
    module: bytes
    graph: Graph
    layouts: PlanLayouts
    target: str
    request: TuneRequest

    @property
    def problems(self) -> tuple[str, ...]:
        """Every problem that is tuned for it: the model's, then those in other layouts."""
        own = (found.problem for found in self.graph.layers)
        return tuple(dict.fromkeys((*own, *problems_of(self.graph, self.layouts))))


@dataclass(frozen=True)
class Part:
    """One problem of a plan, as it is now.

    Attributes:
        found: the problem, and as the model's also its count and its places, as the row has them.
        key: of the problem.
        state: of its job; done where a schedule is stored.
        job: its number; None where a stored schedule needed none.
        time_us: of the stored schedule; None before.
        ended: when its job did; None where there was none, or it goes on.
    """

    found: Mapping[str, Any]
    key: str
    state: JobState
    job: int | None
    time_us: float | None
    ended: datetime | None


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


def compressed(module: bytes) -> bytes:
    """A module as its row keeps it."""
    return zlib.compress(module, LEVEL)


def ask(session: Session, wanted: Wanted, toolchain: str, by: Submitter) -> models.Plan:
    """Join the active plan of the same, or queue what the store does not answer and make a plan.

    Args:
        session: a transaction that writes.
        wanted: the plan.
        toolchain: the present one.
        by: who asks; a plan that is joined stays with whoever asked first.

    Raises:
        TooManyJobsError: a token has as many plans or jobs in flight as it may.
    """
    same = _active(session, wanted, toolchain)
    if same is not None:
        return same
    _require_room(session, by)
    jobs = {}
    for problem in wanted.problems:
        submitted = queue.create_or_join(
            session, parse_problem(problem), wanted.target, wanted.request, toolchain, by
        )
        jobs[problem] = None if submitted.job is None else submitted.job.id
    own = [asdict(found) for found in wanted.graph.layers]
    known = {found["problem"] for found in own}
    made = models.Plan(
        sha256=wanted.sha256,
        name=wanted.name,
        target=wanted.target,
        toolchain=toolchain_row(session, toolchain),
        trials=wanted.request.trials,
        seed=wanted.request.seed,
        cache=wanted.request.cache,
        layouts=wanted.layouts,
        problems=[{**found, "job": jobs[found["problem"]]} for found in own],
        variants=[
            {"problem": problem, "job": job}
            for problem, job in jobs.items()
            if problem not in known
        ],
        skipped=[asdict(one) for one in wanted.graph.skipped],
        graph=to_json(wanted.graph),
        module=wanted.module,
        state="queued",
        token_id=by.token_id,
        request_id=by.request_id,
    )
    session.add(made)
    session.flush()
    return made


def _active(session: Session, wanted: Wanted, toolchain: str) -> models.Plan | None:
    """The plan that waits or is made and will be what is wanted."""
    plan, request = models.Plan, wanted.request
    query = (
        select(plan)
        .join(plan.toolchain)
        .where(
            plan.state.in_(ACTIVE),
            plan.sha256 == wanted.sha256,
            plan.name == wanted.name,
            plan.target == wanted.target,
            models.Toolchain.identity == toolchain,
            plan.trials == request.trials,
            plan.seed == request.seed,
            plan.cache == request.cache,
            plan.layouts == wanted.layouts,
        )
        .order_by(plan.id)
        .options(undefer(plan.plan))
    )
    return next((one for one in session.scalars(query) if fault_of(one) is None), None)


def _require_room(session: Session, by: Submitter) -> None:
    """Raise TooManyJobsError where a token has as many plans in flight as it may have jobs."""
    if by.token_id is None or not by.most_in_flight:
        return
    query = select(func.count()).where(
        models.Plan.token_id == by.token_id, models.Plan.state.in_(ACTIVE)
    )
    if (session.scalar(query) or 0) >= by.most_in_flight:
        raise TooManyJobsError(
            f"{by.most_in_flight} plans of this token wait or are made, the most that may; "
            "ask again when one has ended"
        )


def get(session: Session, number: int, *columns: Any) -> models.Plan:
    """A plan by its number.

    Args:
        session: an open session.
        number: the plan's.
        columns: deferred ones that are read too.

    Raises:
        NotFoundError: there is none.
        DamagedError: its row cannot be read.
    """
    also = [undefer(column) for column in columns]
    found = session.get(models.Plan, number, options=also, populate_existing=True)
    if found is None:
        raise NotFoundError(f"there is no plan {number}")
    broken = fault_of(found)
    if broken is not None:
        raise DamagedError(f"the row of plan {number} in the database is damaged: {broken}")
    return found


def fault_of(plan: models.Plan) -> str | None:
    """What is wrong with a plan's row; None for a sound one."""
    broken = damage(plan)
    if broken is not None:
        return broken
    for name, found in (("problems", plan.problems), ("variants", plan.variants)):
        if not all(_is_part(one) for one in found):
            return f"{name} are not objects of a problem and a job"
    return None


def newest(
    session: Session,
    *,
    state: PlanState | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[models.Plan]:
    """Plans, newest first.

    Args:
        session: an open session.
        state: only those in it, as their rows have it.
        before: only those of a smaller number.
        limit: most of them.
    """
    query = select(models.Plan).order_by(models.Plan.id.desc()).limit(limit)
    if state is not None:
        query = query.where(models.Plan.state == state)
    if before is not None:
        query = query.where(models.Plan.id < before)
    return list(session.scalars(query))


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


def _is_part(found: object) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("problem"), str)
        and isinstance(found.get("job"), int | None)
        and "job" in found
    )


def _jobs(found: Sequence[Json]) -> Collection[int]:
    return {one["job"] for one in found if one["job"] is not None}


def _part(found: Json, key: str, job: models.Job | None, time_us: float | None) -> Part:
    number = None if job is None else job.id
    ended = None if job is None else job.finished_at
    if job is not None and job.state not in ENDED:
        return Part(found, key, job.state, number, time_us, None)
    if time_us is not None:
        return Part(found, key, "done", number, time_us, ended)
    state: JobState = "failed" if job is None or job.state == "done" else job.state
    return Part(found, key, state, number, None, ended)


def endings(parts: Parts) -> Iterator[tuple[int, Part]]:
    """The parts that have ended, numbered in the order in which they did.

    Those that a stored schedule answered come first.
    """
    ended = [part for part in parts.every if part.state in ENDED]
    ranked = sorted(ended, key=lambda part: (part.ended is not None, part.ended))
    return enumerate(ranked)
