"""Pages of plans: which there are, and a model as a graph of what was chosen for it."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from tilewise.schema.modules import ModelPart, PlanVariant
from tilewise.service.api.access import caller_of
from tilewise.service.api.lanes import in_lane
from tilewise.service.api.model_documents import plan_head_json, plan_json
from tilewise.service.api.routes.jobs import LARGEST_ID
from tilewise.service.api.routes.plans import PlanId
from tilewise.service.api.schemas import PlanHeadView
from tilewise.service.api.services import ServicesDep
from tilewise.service.dashboard import plans, stored
from tilewise.service.dashboard.rendering import PageRoute, page
from tilewise.service.dashboard.routes.forms import SEE_OTHER
from tilewise.service.db.models import Plan
from tilewise.service.jobs import model_jobs
from tilewise.service.jobs.plans import check
from tilewise.service.results.readable import listed

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/plans")
@in_lane("reads")
def every_plan(
    request: Request,
    services: ServicesDep,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID)] = None,
) -> Response:
    """Plans, newest first."""
    with services.reading() as session:
        found = model_jobs.newest_plans(session, before=before, limit=stored.PAGE + 1)
        page_of = found[: stored.PAGE]
        shown = listed("plans", page_of, partial(plan_head_json, session), PlanHeadView)
        more = page_of[-1].id if len(found) > stored.PAGE else None
    return page(request, "plans.html", **shown, more=more)


@router.get("/plans/{plan_id}")
@in_lane("reads")
def one_plan(plan_id: PlanId, request: Request, services: ServicesDep) -> Response:
    """A plan: how far its problems are, then its times, its graph and its nodes."""
    with services.reading() as session:
        row = model_jobs.get_plan(session, plan_id, Plan.plan, Plan.script)
        if row.job.state == "done":
            check(row)
        found = plans.sound(plan_json(session, row))
        plan = None if found.plan is None else plans.plan_of(found.plan)
        hrefs = {} if plan is None else plans.schedule_pages(session, plan)
    problems: list[ModelPart | PlanVariant] = [*found.problems, *found.variants]
    return page(
        request,
        "plan.html",
        plan=found,
        shown=None if plan is None else plans.shown(plan, hrefs),
        problems=problems,
        ended=sum(one.state not in ("queued", "running") for one in problems),
        goes_on=found.state in ("queued", "running"),
    )


@router.post("/plans/{plan_id}/cancel")
@in_lane("writes")
def cancel(plan_id: PlanId, request: Request, services: ServicesDep) -> Response:
    """Call a plan off, as `DELETE /v1/plans/{id}` does."""
    with services.writing() as session:
        model_jobs.cancel_plan(session, plan_id, caller_of(request).only_of)
    services.wake()
    return RedirectResponse(f"/plans/{plan_id}", SEE_OTHER)
