"""Pages that show what is stored."""

from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel
from sqlalchemy.orm import Session

from tilewise.kernels.schedule import fast_algorithm
from tilewise.kernels.target.machine import facts_text
from tilewise.schema.base import JobState
from tilewise.search.ranges.result import size_text
from tilewise.service.api.documents import job_json, result_json
from tilewise.service.api.executors import in_executor
from tilewise.service.api.model_documents import plan_head_json
from tilewise.service.api.range_documents import range_json
from tilewise.service.api.routes.jobs import LARGEST_ID, JobId
from tilewise.service.api.schemas import PlanHeadView, ProblemKey
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.dashboard import fleet, live, rendering, stored
from tilewise.service.dashboard.fleet import FleetQuery
from tilewise.service.dashboard.rendering import PageRoute, calls_of, micros, page
from tilewise.service.dashboard.stored import TrialsQuery
from tilewise.service.db import models
from tilewise.service.db.base import is_sound
from tilewise.service.db.models import JobKind
from tilewise.service.errors import NotFoundError
from tilewise.service.jobs import events, lease, queue
from tilewise.service.plots import nest
from tilewise.service.plots.drawing import SPEED
from tilewise.service.plots.ranges import sampled
from tilewise.service.results import history, scripts
from tilewise.service.results.readable import listed

EXAMPLES = (
    ("matmul:m=1024,n=512,k=2048,dtype=f32", "a product of matrices"),
    ("matmul:m=128,n=3072,k=768,dtype=f32,bias,weights=constant", "a layer of BERT"),
    ("conv2d:n=1,h=56,w=56,ci=64,co=64,kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu,weights=constant",
     "a layer of ResNet-50"),
)  # fmt: skip
"""What a user with an empty store may tune first."""

ACTIVE_STATES = ("queued", "running")

router = APIRouter(include_in_schema=False, route_class=PageRoute)

PageNumber = Annotated[int, Query(alias="page", ge=1, le=stored.MOST_PAGES)]
ScheduleId = Annotated[int, Query(ge=1, le=LARGEST_ID)]
ResultName = Annotated[str, Query(pattern=f"^({stored.PAST})?[1-9][0-9]{{0,9}}$")]
"""A stored schedule's number, or that of a past result."""
PAST = stored.PAGE  # past results of a problem that are shown


@router.get("/")
@in_executor("reads")
def overview(
    request: Request, services: ServicesDep, selection: Annotated[FleetQuery, Query()]
) -> Response:
    """Return the overview: jobs, machines, targets and problems."""
    with services.reading() as session:
        found = stored.live(session)
        jobs = [live.job_row(job) for job in found["jobs"]]
        shown = fleet.shown(session, selection, services.toolchain)
    origin = str(request.base_url).rstrip("/")
    return page(
        request, "overview.html", **shown, selection=selection, jobs=jobs,
        machines=found["machines"], examples=EXAMPLES, origin=origin,
    )  # fmt: skip


@router.get("/api")
@router.get("/docs")
async def api(request: Request) -> Response:
    """Return the calls of the HTTP API."""
    return page(request, "api.html", tags=calls_of(request.app.openapi()))


class JobRow(BaseModel):
    """A search, or the plan of a model with its own number, in the table of jobs."""

    id: int
    kind: JobKind
    name: str
    target: str
    state: JobState
    phase: str
    trials: str
    result: str
    created: datetime


@router.get("/jobs")
@in_executor("reads")
def jobs(
    request: Request,
    services: ServicesDep,
    kind: JobKind | Literal[""] = "",
    state: JobState | Literal[""] = "",
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID)] = None,
) -> Response:
    """Return the page of searches and plans, newest first."""
    with services.reading() as session:
        found = queue.list_jobs(
            session, kind=kind or None, state=state or None, before=before, limit=stored.PAGE + 1
        )
        shown = listed("jobs", found[: stored.PAGE], partial(_job_row, session), JobRow)
        more = found[stored.PAGE - 1].id if len(found) > stored.PAGE else None
    return page(request, "jobs.html", **shown, more=more, kind=kind, state=state)


@router.get("/plans")
async def plans() -> Response:
    """Redirect to the page of jobs."""
    return RedirectResponse("/jobs?kind=model", HTTPStatus.MOVED_PERMANENTLY.value)


def _job_row(session: Session, job: models.Job) -> dict[str, Any]:
    """Return a job of any kind as a row; raise ValueError for a damaged one."""
    fault = lease.fault_of(job)
    if fault is not None:
        raise ValueError(fault)
    if job.plan is not None:
        return _plan_row(PlanHeadView(**plan_head_json(session, job.plan)).model_dump())
    found = job_json(session, job)
    row = live.job_row(found)
    return {
        **row,
        "kind": job.kind,
        "name": found["problem"],
        "phase": row["phase"] if job.state in ACTIVE_STATES else "",
        "result": f"{row['best']} {SPEED} {found['verdict'] or ''}".strip() if row["best"] else "",
        "created": job.created_at,
    }


def _plan_row(plan: dict[str, Any]) -> dict[str, Any]:
    totals, result = plan["totals"], ""
    if totals and totals["chosen_us"]:
        ratio = rendering.closely(totals["plain_us"] / totals["chosen_us"])
        result = f"{micros(totals['chosen_us'])} {ratio} as the model has it"
    same = {name: plan[name] for name in ("id", "name", "state", "created")}
    return {
        **same,
        "kind": "model",
        "target": f"{plan['target']}, {plan['cache']}",
        "phase": plan["phase"] or "",
        "trials": "",
        "result": result,
    }


@router.get("/jobs/{job_id}")
@in_executor("reads")
def job(
    job_id: JobId,
    request: Request,
    services: ServicesDep,
    selection: Annotated[TrialsQuery, Query()],
) -> Response:
    """Return the page of a search."""
    with services.reading() as session:
        row = queue.get(session, job_id)
        found = job_json(session, row)
        trials = stored.trials_shown(session, job_id, selection)
        origins = stored.origins_of(session, job_id)
        last = events.last_number(session, job_id)
        budget = {"seconds": row.seconds, "sampler": row.sampler, "seed": row.seed}
    counts = {name: found["trials"][name] for name in ("timed", "pruned", "failed")}
    total = counts[selection.state] if selection.state else sum(counts.values())
    return page(
        request,
        "job.html",
        job=found,
        budget=budget,
        origins=origins,
        trials=trials,
        last=last,
        total=total,
        selection=selection,
        pages=max(1, -(-total // stored.TRIALS)),
    )


@router.get("/problems/{key}")
@in_executor("reads")
def problem(
    key: ProblemKey, request: Request, services: ServicesDep, schedule: ScheduleId | None = None
) -> Response:
    """Return the page of a problem."""
    with services.reading() as session:
        canonical = stored.problem_named(session, key)
        rows = stored.rows_of(session, models.Schedule, key)
        if not rows and (of_range := stored.rows_of(session, models.TunedRange, key)):
            one = _chosen(of_range, schedule, services)
            found = range_json(one, services.toolchain)
            return page(
                request,
                "range.html",
                problem=canonical,
                key=key,
                result=found,
                number=one.id,
                served=stored.served(of_range, one, services.toolchain).id,
                job=one.job_id,
                others=[row for row in of_range if row is not one],
                keys=[problem.key for problem in sampled(found)],
                size_text=partial(size_text, found),
                steps_text=stored.steps_text,
            )
        if not rows:
            return page(request, "unsolved.html", problem=canonical, jobs=_jobs(session, key))
        chosen = _chosen(rows, schedule, services)
        result = result_json(session, chosen, services.toolchain, target=chosen.target)
        served = stored.served(rows, chosen, services.toolchain)
        flavor = scripts.searched_flavor(chosen.target)
        script = scripts.proven_script(session, chosen, flavor)
        machine = session.get(models.Machine, chosen.machine_id)
        caches = dict(machine.caches) if machine is not None and is_sound(machine) else {}
        host = "" if machine is None else machine.host
        links = [result_link(row, services) for row in rows]
        links += [result_link(row, services) for row in history.of_problem(session, key, PAST)]
    return page(
        request,
        "problem.html",
        problem=canonical,
        key=key,
        result=result,
        chosen=chosen.id,
        served=served.id,
        job=chosen.job_id,
        host=host,
        facts=facts_text(result["machine"]) if result["machine"] else "",
        unknown=result["match"]["reason"],
        peak=result["best"]["gflops"] / result["best"]["peak_fraction"],
        fewer=fast_algorithm(result["best"]["steps"]),
        steps=stored.steps_text(result["best"]["steps"]),
        nest=nest.drawn(canonical, result["best"]["steps"], caches),
        flavor=flavor,
        script=None if script is None else rendering.mlir(script.text),
        links=sorted(links, key=lambda link: link["created"], reverse=True),
    )


def _chosen(rows: list[stored.Stored], number: int | None, services: Services) -> stored.Stored:
    """The requested schedule, else that of the present toolchain, else the newest."""
    if number is not None:
        found = next((row for row in rows if row.id == number), None)
        if found is None:
            raise NotFoundError(f"schedule {number} is of another problem, or of none")
        return found
    here = services.machine.target
    return min(
        rows,
        key=lambda row: (row.toolchain.identity != services.toolchain, row.target != here,
                         row.cache != "hot"),
    )  # fmt: skip


def result_link(row: models.Schedule | models.PastSchedule, services: Services) -> dict[str, Any]:
    """Return what a row of a problem's history shows."""
    name, state = str(row.id), ""
    if isinstance(row, models.PastSchedule):
        name, state = f"{stored.PAST}{row.id}", "earlier best" if row.was_best else "never best"
    return {
        "id": name,
        "state": state,
        "quality": history.quality(row),
        "target": row.target,
        "host": row.machine.host if is_sound(row.machine) else "",
        "cache": row.cache,
        "toolchain": row.toolchain.identity,
        "gflops": row.gflops,
        "low": row.low,
        "high": row.high,
        "hash": row.hash,
        "created": row.created_at,
        "is_stale": row.toolchain.identity != services.toolchain,
    }


def _jobs(session: Session, key: str) -> list[dict[str, Any]]:
    query = session.query(models.Job).join(models.Job.problem).filter(models.Problem.key == key)
    found = query.order_by(models.Job.id.desc()).limit(stored.PAGE)
    return [_job_row(session, row) for row in found if is_sound(row)]
