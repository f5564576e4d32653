"""Assignments of plans, and how a run stores its phase, the plan and its end.

What is served of a plan carries a digest, so that a row that was changed is refused.
"""

import hashlib
import json
import logging
import zlib
from dataclasses import dataclass
from typing import Literal

from sqlalchemy.orm import Session

from tilewise.kernels.mlir.frontend.graph import Graph
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.typed_json import from_json
from tilewise.schema.base import Json
from tilewise.search.networks.costs import MOST_TIMED_COLD, Timed, algorithm_of, fastest_of_each
from tilewise.search.networks.request import PlanRequest
from tilewise.service.db.models import Job, Plan, PlanSource
from tilewise.service.db.session import Sessions, writing
from tilewise.service.errors import PASSING, DamagedError, TamperedError
from tilewise.service.jobs import lease
from tilewise.service.jobs.lease import Lease
from tilewise.service.jobs.model_jobs import get_plan
from tilewise.service.jobs.parts import key_of
from tilewise.service.results import integrity
from tilewise.service.results.schedules import find_fresh
from tilewise.service.results.stored import Lookup
from tilewise.service.results.trials import trials_for_same_work

PlanPhase = Literal["choosing", "proving"]
CHOOSING: PlanPhase = "choosing"
PROVING: PlanPhase = "proving"
PLAN_AGAIN = "request the plan again (POST /v1/plans)"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlanAssignment:
    """A plan to make.

    `schedules` holds for each problem the fastest of each algorithm, at most `MOST_TIMED_COLD`, the
    fastest first. `plan` is what an earlier run has chosen.
    """

    plan_id: int
    request: PlanRequest
    graph: Graph
    schedules: dict[str, tuple[Timed, ...]]
    plan: Json | None


@dataclass(frozen=True)
class PackOutcome:
    """The pack script of a module with its proof in its header, or why there is none."""

    script: str | None = None
    proof: Json | None = None
    error: str | None = None


@dataclass(frozen=True)
class Made:
    """A plan that was made: `tilewise/plan/1`, and the script that packs its module."""

    plan: Json
    packed: PackOutcome


def read_assignment(session: Session, number: int) -> tuple[PlanAssignment, bytes]:
    """Return what a plan is made from, and its module; raise NotFoundError or DamagedError."""
    row = get_plan(session, number, Plan.plan)
    graph, module = _source(row)
    found = {one["problem"]: _stored(session, row.job, one["problem"])
             for one in (*row.problems, *row.variants)}  # fmt: skip
    schedules = {problem: timed for problem, timed in found.items() if timed}
    request = PlanRequest.of(row, row.job)
    return PlanAssignment(number, request, graph, schedules, _chosen(row)), module


def _source(row: Plan) -> tuple[Graph, bytes]:
    """Return the graph and the module of a plan; raise DamagedError if they cannot be read."""
    source = row.source or PlanSource()
    try:
        graph = from_json(Graph, source.graph, tolerant=True)
        if not isinstance(source.module, bytes):  # SQLite keeps any value in any column
            raise ValueError(f"the module is of type {type(source.module).__name__}")
        return graph, zlib.decompress(source.module)
    except (ValueError, zlib.error) as error:
        raise DamagedError(f"graph or module of plan {row.id} cannot be read: {error}") from error


def _chosen(row: Plan) -> Json | None:
    """Return what an earlier run has chosen; None where that was changed since."""
    if row.plan is None or row.digest == digest(row, row.plan, None):
        return row.plan
    log.warning("plan %d: what was chosen is not what was stored; it is chosen anew", row.id)
    return None


def _stored(session: Session, job: Job, problem: str) -> tuple[Timed, ...]:
    """Return the stored best of a problem, and the fastest trials of each algorithm."""
    best = find_fresh(session, key_of(problem), Lookup.of(job))
    if best is None:
        return ()
    try:
        integrity.check_result(best)
    except TamperedError:  # it was logged; nothing is planned on it
        return ()
    first = _timed(best.hash, Schedule.from_json(best.steps), best.time_us)
    # Those count, too, whose timing was cut short because others were faster: they are timed again.
    others = trials_for_same_work(session, best, ("timed", "pruned"))
    more = (_timed(one.hash, one.schedule, one.time_us) for one in others)
    return fastest_of_each((first, *more), MOST_TIMED_COLD)


def _timed(hashed: str, schedule: Schedule, time_us: float) -> Timed:
    return Timed(algorithm_of(schedule), hashed, tuple(schedule.to_json()), time_us)


def digest(row: Plan, plan: Json | None, script: str | None) -> str:
    """Return SHA-256 of a plan and its script, of this module, target and toolchain, hex."""
    content = [row.sha256, row.job.target, row.job.toolchain.identity, plan, script]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check(row: Plan) -> None:
    """Raise TamperedError if the plan or the script of a finished row was changed."""
    if row.digest != digest(row, row.plan, row.script):
        raise integrity.refusal("plans", row.id, "the plan or its script", PLAN_AGAIN)


def note(sessions: Sessions, held: Lease, phase: str, plan: Json | None) -> None:
    """Store the phase of a run, and the plan once it is chosen; raise LeaseLostError.

    A database that is away does not end the run.
    """
    try:
        with writing(sessions) as session:
            lease.beat(session, held)
            session.execute(held.of_run().values(phase=phase))
            if plan is not None:
                row = of_job(session, held.job_id)
                row.plan, row.totals = plan, plan["totals"]
                row.digest = digest(row, plan, None)
    except PASSING as error:
        log.warning("%s: phase %s is not stored: %s", held.name, phase, error)


def done(session: Session, held: Lease, made: Made) -> bool:
    """End a plan with its result; return False if it was cancelled or taken over."""
    if not lease.end(session, held, state="done", complete=True, error=None):
        return False
    row, packed = of_job(session, held.job_id), made.packed
    row.plan, row.totals = made.plan, made.plan["totals"]
    row.script, row.proof, row.script_error = packed.script, packed.proof, packed.error
    row.digest = digest(row, made.plan, packed.script)
    return True


def of_job(session: Session, job_id: int) -> Plan:
    """Return the plan that a job of kind `model` makes; DamagedError where there is none."""
    found = session.query(Plan).filter_by(job_id=job_id).one_or_none()
    if found is None:
        raise DamagedError(f"the row of the plan of job {job_id} is not in the database")
    return found
