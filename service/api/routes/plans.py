"""`/v1/plans`: algorithms and layouts of a whole model, chosen by a worker of the target."""

import hashlib
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from tilewise.kernels.errors import ModuleError, TargetError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import target_kind
from tilewise.schema.base import JobState
from tilewise.search.networks.plan import runner_text
from tilewise.service.api.access import caller_of
from tilewise.service.api.answer_cache import not_modified
from tilewise.service.api.executors import in_executor
from tilewise.service.api.model_documents import PLANS, plan_head_json, plan_json
from tilewise.service.api.problem_details import responses, text_responses
from tilewise.service.api.requests import PlanQuery
from tilewise.service.api.routes.jobs import LARGEST_ID, Cursor, IdempotencyKey, Limit, Sender
from tilewise.service.api.routes.modules import BODY, given, graph_of
from tilewise.service.api.schemas import PlanHeadView, PlanPage, PlanView, UnfinishedView
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.db.models import Plan
from tilewise.service.errors import ConflictError, NotFoundError, UndoneError
from tilewise.service.jobs import idempotency, model_jobs, plans
from tilewise.service.jobs.model_jobs import Wanted
from tilewise.service.results.readable import RowPage

MLIR, PYTHON = "text/x-mlir", "text/x-python"

router = APIRouter(prefix=PLANS, tags=["plans"])


PlanId = Annotated[int, Path(ge=1, le=LARGEST_ID)]


@router.post(
    "",
    response_model=PlanView,
    status_code=HTTPStatus.ACCEPTED,
    responses={
        HTTPStatus.ACCEPTED.value: {
            "model": PlanView | UnfinishedView,
            "description": "A plan with its jobs; or its module is being read: post it again "
            "after `Retry-After` seconds",
        },
        **responses(
            HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.TOO_MANY_REQUESTS
        ),
    },
    openapi_extra=BODY,
)
async def post_plan(
    request: Request,
    services: ServicesDep,
    query: Annotated[PlanQuery, Depends()],
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Plan a model; answer 202 with the plan.

    The body is that of `/v1/problems/parse`. Once all jobs have ended, a worker of the target
    times the copies between layouts, chooses, and proves the script that packs the module. The
    module is stored until then.

    With `accuracy=strict` all problems have `accuracy=strict`.

    `name` is shown in lists; by default it is `model-` and the start of the module's hash.

    With an `Idempotency-Key`, the same request within a day returns the same plan.
    """
    sha256, module = await given(request, services)
    found = await graph_of(services, sha256, module)
    graph = await services.executors.reads.run(partial(found.with_accuracy, query.accuracy))
    compressed = await services.executors.reads.run(partial(model_jobs.compressed, module))
    named = replace(query, name=query.name or f"model-{sha256[:8]}.mlir")
    wanted = Wanted(sha256, compressed, graph, named)
    sender = Sender.of(request, services, idempotency_key)
    answer = await services.executors.writes.run(partial(_ask, services, wanted, sender))
    services.wake()
    return answer


@router.get("", response_model=PlanPage)
@in_executor("reads")
def list_plans(
    services: ServicesDep, state: JobState | None = None, cursor: Cursor = None, limit: Limit = 100
) -> dict[str, Any]:
    """List plans without their problems, newest first; optionally in one state.

    For this filter, a plan is `queued` while its jobs run and no worker has it.
    """
    with services.reading() as session:
        found = model_jobs.newest_plans(session, state=state, before=cursor, limit=limit + 1)
        page = RowPage("plans", PLANS, limit, {"state": state})
        return page.of(found, partial(plan_head_json, session), PlanHeadView)


@router.get("/{plan_id}", response_model=PlanView, responses=responses(HTTPStatus.NOT_FOUND))
@in_executor("reads")
def get_plan(plan_id: PlanId, services: ServicesDep) -> dict[str, Any]:
    """Return a plan: its state, that of each of its problems, and what was chosen."""
    with services.reading() as session:
        row = model_jobs.get_plan(session, plan_id, Plan.plan, Plan.script)
        if row.job.state == "done":
            plans.check(row)
        return plan_json(session, row)


@router.delete(
    "/{plan_id}",
    response_model=PlanView,
    responses=responses(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
)
@in_executor("writes")
def cancel_plan(plan_id: PlanId, request: Request, services: ServicesDep) -> dict[str, Any]:
    """Cancel a plan; its jobs continue and can be cancelled by their numbers.

    A token of scope `submit` may cancel its own plans, one of scope `admin` any.
    """
    only_of = caller_of(request).only_of
    with services.writing() as session:
        answer = plan_json(session, model_jobs.cancel_plan(session, plan_id, only_of))
    services.wake()
    return answer


def _texts(media_type: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entry of a route that gives a text which is stored."""
    found = text_responses(media_type)
    del found[HTTPStatus.ACCEPTED.value]
    return found


@router.get("/{plan_id}/script", response_class=Response, responses=_texts(MLIR))
async def get_script(
    plan_id: PlanId, services: ServicesDep, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """Return the transform script that packs the whole module, with its proof in its header.

    The answer is 409 while the plan is not done, and 404 if it failed, was cancelled, or cannot be
    packed: the detail says why.
    """
    text = await services.executors.reads.run(partial(_script, services, plan_id))
    return _answer(text, MLIR, if_none_match)


@router.get("/{plan_id}/runner", response_class=Response, responses=_texts(PYTHON))
async def get_runner(
    plan_id: PlanId,
    services: ServicesDep,
    form: Annotated[Literal["module"], Query(alias="format")] = "module",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Return a Python module whose `load` gives the planned network of the module that was planned.

    It needs Tilewise and a machine of the plan's target. The answer is 409 while the plan is not
    done, and 404 if it failed or was cancelled.
    """
    text = await services.executors.reads.run(partial(_runner, services, plan_id))
    return _answer(text, PYTHON, if_none_match)


def _ask(services: Services, wanted: Wanted, sender: Sender) -> JSONResponse:
    wanted = _checked(services, wanted)
    key = sender.named(wanted.digest)
    with services.writing() as session:
        before = None if key is None else idempotency.answered(session, key)
        if before is not None and before.plan is not None:
            plan = model_jobs.get_plan(session, before.plan.id, Plan.plan)
        else:
            plan = model_jobs.request_plan(session, wanted, services.toolchain, sender.by)
            if key is not None and not idempotency.remember(session, key, plan.job):
                # This plan is rolled back; the executor retries, and finds the first one.
                raise UndoneError("another request with the same key was first")
        answer = plan_json(session, plan)
    view = PlanView.model_validate(answer).model_dump(mode="json")
    return JSONResponse(view, HTTPStatus.ACCEPTED, headers={"Location": answer["links"]["self"]})


def _checked(services: Services, wanted: Wanted) -> Wanted:
    """Return the request with its canonical target, once this service can do it.

    Raises ModuleError if nothing can be tuned, TargetError for a target that is not served or not
    native, ProblemError for a problem that does not fit in memory.
    """
    if not wanted.graph.layers:
        raise ModuleError(
            f"the module has no matmul or convolution that can be tuned{wanted.graph.why_no_layer}"
        )
    request, target = wanted.request, wanted.request.target
    if target_kind(target) != "cpu":
        raise TargetError(f"target {target!r}: plans are of native kernels; give cpu:host")
    served = services.require_served(target)
    for problem in wanted.problems:
        services.check_memory(parse_problem(problem))
    return replace(wanted, request=replace(request, target=served))


def _script(services: Services, plan_id: int) -> str:
    row = _done(services, plan_id, "script")
    if row.script is None:
        raise NotFoundError(f"plan {plan_id} has no script: {row.script_error}")
    return row.script


def _runner(services: Services, plan_id: int) -> str:
    row = _done(services, plan_id, "runner")
    assert row.plan is not None, "its digest is that of a plan"
    return runner_text(row.plan, row.sha256)


def _done(services: Services, plan_id: int, what: str) -> Plan:
    """Return a plan that is done.

    Raises NotFoundError if there is none or it has failed, ConflictError while it is running,
    TamperedError if its row was changed.
    """
    with services.reading() as session:
        row = model_jobs.get_plan(session, plan_id, Plan.plan, Plan.script)
        if row.job.state == "failed":
            raise NotFoundError(f"plan {plan_id} has no {what}, since it failed: {row.job.error}")
        if row.job.state == "cancelled":
            raise NotFoundError(f"plan {plan_id} has no {what}, since it was cancelled")
        if row.job.state != "done":
            raise ConflictError(
                f"plan {plan_id} is {row.job.state}; request its {what} once it is done"
            )
        plans.check(row)
        return row


def _answer(text: str, media_type: str, if_none_match: str | None) -> Response:
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    return not_modified(headers, if_none_match) or Response(
        text, media_type=media_type, headers=headers
    )
