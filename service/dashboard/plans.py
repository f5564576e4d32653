"""The page of a plan: a model as a graph of chosen layouts and algorithms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.kernels.problem import parse_problem
from tilewise.schema.base import read
from tilewise.schema.modules import ModelPart, ModelPlan, PlanVariant
from tilewise.search.networks.plan import Plan
from tilewise.service.api.access import caller_of
from tilewise.service.api.executors import in_executor
from tilewise.service.api.model_documents import plan_json
from tilewise.service.api.routes.plans import PlanId
from tilewise.service.api.schemas import PlanView
from tilewise.service.api.services import ServicesDep
from tilewise.service.dashboard.rendering import PageRoute, page
from tilewise.service.dashboard.routes.forms import SEE_OTHER
from tilewise.service.db import models
from tilewise.service.errors import DamagedError
from tilewise.service.jobs import model_jobs
from tilewise.service.jobs.plans import check
from tilewise.service.plots.networks.drawing import draw
from tilewise.service.plots.networks.picture import Bar, Box, PlanPicture, bars, kind_of, picture_of

Json = dict[str, Any]

WIDE = 900.0  # width in pixels from which the page shows its text below
LONGEST = 8  # nodes that a page names next to the graph


@dataclass(frozen=True)
class PlanRow:
    """A box as a row of the table; `share` is of the planned time, None if not timed."""

    box: Box
    href: str | None
    share: float | None


@dataclass(frozen=True)
class PlanPage:
    """A plan as its page shows it.

    `kinds` are of the parts of the first bar; `rows` have the order of execution; `longest` are the
    slowest rows.
    """

    graph: str
    is_wide: bool
    bars: list[Bar]
    kinds: set[str]
    rows: list[PlanRow]
    longest: list[PlanRow]
    is_exact: bool
    copies: int
    copies_us: float
    nodes: int
    around: int


def sound(found: Json) -> ModelPlan:
    """Return a plan's document, or raise DamagedError if it is not one the API would give."""
    try:
        return read(ModelPlan, PlanView.model_validate(found).model_dump(mode="json"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ": ".join((*map(str, first["loc"]), first["msg"]))
        raise DamagedError(f"the row of plan {found['id']} is damaged: {where}") from error


def plan_of(source: object) -> Plan:
    """Return a stored plan, or raise DamagedError."""
    try:
        return Plan.from_json(source)
    except ValueError as error:
        raise DamagedError(f"the stored plan is damaged: {error}") from error


def shown(plan: Plan, hrefs: dict[str, str]) -> PlanPage:
    """Return a plan as its page shows it; `hrefs` are pages of schedules by problem.

    Raises DamagedError if it names a tensor that it does not have.
    """
    try:
        picture = picture_of(plan)
        graph = draw(picture, _links(plan, hrefs), f"Graph of {plan.model}")
    except ValueError as error:
        raise DamagedError(f"the stored plan is damaged: {error}") from error
    rows = list(_rows(picture, hrefs))
    timed = [row for row in rows if row.box.time_us is not None]
    return PlanPage(
        graph=graph.svg,
        is_wide=graph.width > WIDE,
        bars=bars(picture, plan.totals),
        kinds={kind_of(row.box) for row in timed},
        rows=rows,
        longest=sorted(timed, key=lambda row: -(row.box.time_us or 0.0))[:LONGEST],
        is_exact=plan.is_exact,
        copies=len(plan.conversions),
        copies_us=sum(one.time_us for one in plan.conversions),
        nodes=len(plan.nodes),
        around=sum(bool(node.reason) for node in plan.nodes),
    )


def schedule_pages(session: Session, plan: Plan) -> dict[str, str]:
    """Return the page of each stored problem, with the schedule of the plan."""
    chosen = {
        parse_problem(node.problem).key: (node.problem, node.schedule.hash)
        for node in plan.nodes
        if node.problem is not None and node.schedule is not None
    }
    known = session.scalars(select(models.Problem.key).where(models.Problem.key.in_(chosen)))
    pages = {key: f"/problems/{key}" for key in known}
    stored = session.execute(
        select(models.Problem.key, models.Schedule.hash, models.Schedule.id)
        .join(models.Schedule.problem)
        .where(models.Problem.key.in_(chosen), models.Schedule.target == plan.target)
    )
    for key, digest, number in stored:
        if chosen[key][1] == digest:
            pages[key] = f"/problems/{key}?schedule={number}"
    return {chosen[key][0]: page for key, page in pages.items()}


def _links(plan: Plan, hrefs: dict[str, str]) -> Callable[[int], str | None]:
    return lambda node: hrefs.get(plan.nodes[node].problem or "")


def _rows(picture: PlanPicture, hrefs: dict[str, str]) -> Iterator[PlanRow]:
    for box in picture.in_order:
        if box.kind != "end":
            share = (box.time_us or 0.0) / picture.total_us if picture.total_us else 0.0
            yield PlanRow(box, hrefs.get(box.problem), None if box.time_us is None else share)


router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/plans/{plan_id}")
@in_executor("reads")
def one_plan(plan_id: PlanId, request: Request, services: ServicesDep) -> Response:
    """Return the page of a plan: the progress of its problems, or its times and graph."""
    with services.reading() as session:
        row = model_jobs.get_plan(session, plan_id, models.Plan.plan, models.Plan.script)
        if row.job.state == "done":
            check(row)
        found = sound(plan_json(session, row))
        plan = None if found.plan is None else plan_of(found.plan)
        hrefs = {} if plan is None else schedule_pages(session, plan)
    problems: list[ModelPart | PlanVariant] = [*found.problems, *found.variants]
    return page(
        request,
        "plan.html",
        plan=found,
        shown=None if plan is None else shown(plan, hrefs),
        problems=problems,
        ended=sum(one.state not in ("queued", "running") for one in problems),
        goes_on=found.state in ("queued", "running"),
    )


@router.post("/plans/{plan_id}/cancel")
@in_executor("writes")
def cancel(plan_id: PlanId, request: Request, services: ServicesDep) -> Response:
    """Call a plan off, as `DELETE /v1/plans/{id}` does."""
    with services.writing() as session:
        model_jobs.cancel_plan(session, plan_id, caller_of(request).only_of)
    services.wake()
    return RedirectResponse(f"/plans/{plan_id}", SEE_OTHER)
