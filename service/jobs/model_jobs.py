"""Whole models: a job for each problem that the store does not answer, and a plan if wanted.

A model is a job of kind `model` itself, and so is a plan: `networks` and `plans` have what is their
own, each with its number.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from tilewise.kernels.mlir.frontend.graph import Graph, Imported
from tilewise.kernels.problem import Accuracy, parse_problem
from tilewise.kernels.system.typed_json import to_json
from tilewise.schema.base import JobState
from tilewise.search.networks.request import PlanRequest
from tilewise.search.networks.variants import problems_of
from tilewise.search.records import TuneRequest
from tilewise.service.db.base import damage, now
from tilewise.service.db.models import ENDED, Job, Network, Plan, PlanSource, Toolchain
from tilewise.service.db.rows import inserted, newest, required, toolchain_row
from tilewise.service.errors import TooManyJobsError, UndoneError
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.lease import fault_of_plan
from tilewise.service.jobs.queue import Submitter

LEVEL = 1  # of zlib: dense weights in hex shrink to about half at any level


@dataclass(frozen=True)
class Wanted:
    """A plan to make; `module` is compressed by `compressed`, `sha256` is of the original."""

    sha256: str
    module: bytes
    graph: Graph
    request: PlanRequest

    @property
    def digest(self) -> str:
        """SHA-256 of the request, hex."""
        request = self.request
        named = self.sha256, request.name, request.layouts, request.target
        parts = ["plan", *named, asdict(request.search), *request.newer.items()]
        if request.accuracy != "standard":  # requests had no accuracy before it could be strict
            parts.append(request.accuracy)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def work(self) -> str:
        """What distinguishes the plan from others for the same target and toolchain."""
        request = self.request
        first = (
            f"{self.sha256} {request.layouts} {request.accuracy} {request.trials} {request.seed} "
            f"{request.cache} {request.name}"
        )
        # No name has a newline.
        return "\n".join([first, *(f"{name}={value}" for name, value in request.newer.items())])

    @property
    def problems(self) -> tuple[str, ...]:
        """Every problem that is tuned for it: the model's, then those in other layouts."""
        own = (found.problem for found in self.graph.layers)
        return tuple(dict.fromkeys((*own, *problems_of(self.graph, self.request.layouts))))


def compressed(module: bytes) -> bytes:
    """Return a module as its row keeps it."""
    return zlib.compress(module, LEVEL)


def request_plan(session: Session, wanted: Wanted, toolchain: str, by: Submitter) -> Plan:
    """Join the active plan of the same work, or queue missing searches and create a plan.

    A plan that is joined stays with its first requester. Raises TooManyJobsError at the token's
    limit.
    """
    request = wanted.request
    active = (
        select(Job)
        .join(Job.toolchain)
        .where(
            Job.work == wanted.work,
            Job.target == request.target,
            Toolchain.identity == toolchain,
            Job.state.not_in(ENDED),
        )
    )
    # Locked on a server, where its end could come between.
    same = session.scalar(active.with_for_update(of=Job))
    if same is not None and not lease.fail_damaged(session, same):
        return _planned(session, same)
    queue.require_room(session, by, "model")
    search, target = request.search, request.target
    jobs = request_searches(session, wanted.problems, target, search, toolchain, by)
    own = [asdict(found) for found in wanted.graph.layers]
    known = {found["problem"] for found in own}
    toolchain_id = toolchain_row(session, toolchain).id
    of_model = {"kind": "model", "work": wanted.work}
    job = queue.new_job(search, target, toolchain_id, by, **of_model)
    made = Plan(
        job=job,
        sha256=wanted.sha256,
        **{name: value for name, value in vars(request).items() if hasattr(Plan, name)},
        problems=[{**found, "job": jobs[found["problem"]]} for found in own],
        variants=[
            {"problem": problem, "job": number}
            for problem, number in jobs.items()
            if problem not in known
        ],
        skipped=[asdict(one) for one in wanted.graph.skipped],
        source=PlanSource(graph=to_json(wanted.graph), module=wanted.module),
    )
    if inserted(session, made):
        return made
    first = session.scalars(active).one_or_none()  # another request for the same plan
    if first is None:  # and has ended since
        raise UndoneError("another request for the same plan was first, and ended")
    return _planned(session, first)


def request_tuning(
    session: Session,
    module: tuple[str, Imported],
    target: str,
    request: TuneRequest,
    toolchain: str,
    by: Submitter,
) -> Network:
    """Queue the searches that the store does not answer, and store the model.

    `module` is the SHA-256 of the text and what was found in it.
    """
    sha256, imported = module
    found = [asdict(one) for one in imported.problems]
    request_searches(session, (one["problem"] for one in found), target, request, toolchain, by)
    skipped = [asdict(one) for one in imported.skipped]
    job = ended_job(request, target, toolchain_row(session, toolchain).id, by, now())
    made = Network(job=job, sha256=sha256, problems=found, skipped=skipped)
    session.add(made)
    session.flush()
    return made


def request_searches(
    session: Session,
    problems: Iterable[str],
    target: str,
    request: TuneRequest,
    toolchain: str,
    by: Submitter,
) -> dict[str, int | None]:
    """Return the number of the job of each problem; None where a stored schedule answers.

    Any number of problems of one model or look-up fits where one does, or many never would.
    """
    jobs = {}
    with suppress(TooManyJobsError):
        queue.require_room(session, by, "tune")
        by = replace(by, most_in_flight=0)
    for problem in problems:
        submitted = queue.create_or_join(
            session, parse_problem(problem), target, request, toolchain, by
        )
        jobs[problem] = None if submitted.job is None else submitted.job.id
    return jobs


def ended_job(
    request: TuneRequest,
    target: str,
    toolchain_id: int,
    by: Submitter,
    moment: datetime,
    **columns: Any,
) -> Job:
    """Return a job with nothing to do of its own: of a model, unless `columns` have a kind."""
    job = queue.new_job(request, target, toolchain_id, by, **{"kind": "model", **columns})
    job.state, job.created_at, job.finished_at = "done", moment, moment
    return job


def _planned(session: Session, job: Job) -> Plan:
    """Return the plan of a job, with what was chosen."""
    query = select(Plan).where(Plan.job_id == job.id).options(undefer(Plan.plan))
    return session.scalars(query).one()


def get_plan(session: Session, number: int, *columns: Any) -> Plan:
    """Return a plan with these deferred columns; raise NotFoundError or DamagedError."""
    options = [undefer(column) for column in columns]
    found = session.get(Plan, number, options=options, populate_existing=True)
    return required(found, f"plan {number}", lambda plan: damage(plan.job) or fault_of_plan(plan))


def get_model(session: Session, number: int) -> Network:
    """Return a model; raise NotFoundError or DamagedError."""
    found = session.get(Network, number)
    return required(found, f"model {number}", lambda row: damage(row.job) or damage(row))


def newest_plans(
    session: Session, *, state: JobState | None = None, before: int | None = None, limit: int = 100
) -> list[Plan]:
    """Return plans, newest first, with numbers below `before`."""
    in_state = [] if state is None else [Plan.job.has(state=state)]
    return newest(session, Plan, before, limit, *in_state)


def planning(session: Session) -> dict[int, str]:
    """Return the process that makes each plan now."""
    query = (
        select(Plan.id, Job.owner)
        .join(Plan.job)
        .where(Job.state == "running", Job.heartbeat_at > now() - lease.LEASE)
    )
    rows = session.execute(query).all()
    return {row.id: row.owner for row in rows if isinstance(row.owner, str)}


def cancel_plan(session: Session, number: int, only_of: int | None = None) -> Plan:
    """Cancel a plan. Its jobs go on, since others may have joined them.

    `only_of` is the token that must have created it. Raises as `get_plan`, ForbiddenError for
    another token, ConflictError if it has ended.
    """
    plan = get_plan(session, number, Plan.plan)
    session.refresh(plan.job, with_for_update={"of": Job})
    queue.call_off(session, plan.job, f"plan {number}", only_of)
    return plan


def accuracy_of(network: Network) -> Accuracy:
    """Return the accuracy of the model's problems, each of which says it."""
    are_strict = all(parse_problem(found["problem"]).is_strict for found in network.problems)
    return "strict" if are_strict else "standard"
