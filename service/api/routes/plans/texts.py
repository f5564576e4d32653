"""`/v1/plans/{id}/script` and `/runner`: the texts that come of a plan."""

import hashlib
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response

from tilewise.search.networks.plan import runner_text
from tilewise.service.api.answer_cache import matches
from tilewise.service.api.problem_details import responses
from tilewise.service.api.routes.plans.asking import PlanId
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.db import models
from tilewise.service.errors import ConflictError, NotFoundError
from tilewise.service.plans import endings, rows
from tilewise.service.plans.documents import PATH

router = APIRouter(prefix=PATH, tags=["plans"])

MLIR, PYTHON = "text/x-mlir", "text/x-python"
Form = Literal["module"]


def _texts(media_type: str) -> dict[int | str, dict[str, Any]]:
    return {
        HTTPStatus.OK.value: {
            "content": {media_type: {"schema": {"type": "string"}}},
            "description": "The text",
        },
        HTTPStatus.NOT_MODIFIED.value: {"description": "The client has this text"},
        **responses(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    }


@router.get("/{plan_id}/script", response_class=Response, responses=_texts(MLIR))
async def get_script(
    plan_id: PlanId, services: ServicesDep, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """The transform script that packs the whole module, with its proof in its header.

    409 while the plan is not done; 404 where it has failed or was cancelled, or the module cannot
    be packed: the detail says why.
    """
    text = await services.lanes.reads.run(partial(_script, services, plan_id))
    return _answer(text, MLIR, if_none_match)


@router.get("/{plan_id}/runner", response_class=Response, responses=_texts(PYTHON))
async def get_runner(
    plan_id: PlanId,
    services: ServicesDep,
    form: Annotated[Form, Query(alias="format")] = "module",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """A Python module whose `load` gives the planned network of the module that was planned.

    It needs Tilewise where it is imported, on a machine of the plan's target. 409 while the plan
    is not done; 404 where it has failed or was cancelled.
    """
    text = await services.lanes.reads.run(partial(_runner, services, plan_id))
    return _answer(text, PYTHON, if_none_match)


def _script(services: Services, plan_id: int) -> str:
    row = _done(services, plan_id, "script")
    if row.script is None:
        raise NotFoundError(f"plan {plan_id} has no script: {row.script_error}")
    return row.script


def _runner(services: Services, plan_id: int) -> str:
    row = _done(services, plan_id, "runner")
    assert row.plan is not None, "its digest is that of a plan"
    return runner_text(row.plan, row.sha256)


def _done(services: Services, plan_id: int, what: str) -> models.Plan:
    """A plan that is done, as it was stored.

    Raises:
        NotFoundError: there is no such plan, or it has failed or was cancelled.
        ConflictError: it goes on.
        TamperedError: it is not what was stored.
    """
    with services.reading() as session:
        row = rows.get(session, plan_id, models.Plan.plan, models.Plan.script)
        if row.state == "failed":
            raise NotFoundError(f"plan {plan_id} has no {what}, since it failed: {row.error}")
        if row.state == "cancelled":
            raise NotFoundError(f"plan {plan_id} has no {what}, since it was cancelled")
        if row.state != "done":
            raise ConflictError(f"plan {plan_id} is not done; its {what} is there once it is")
        endings.check(row)
        return row


def _answer(text: str, media_type: str, if_none_match: str | None) -> Response:
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if if_none_match is not None and matches(if_none_match, tag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(text, media_type=media_type, headers=headers)
