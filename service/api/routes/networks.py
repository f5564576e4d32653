"""`/v1/models`: all problems of a module tuned as one."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import JSONResponse

from tilewise.kernels.errors import ModuleError, UnsupportedError
from tilewise.kernels.mlir.frontend.graph import Imported, why_none
from tilewise.kernels.mlir.tuning_spec.form import check_covered
from tilewise.kernels.problem import parse_problem
from tilewise.search.networks.request import ModelRequest
from tilewise.service.api.executors import in_executor
from tilewise.service.api.model_documents import MODELS, model_json
from tilewise.service.api.problem_details import responses
from tilewise.service.api.routes.jobs import LARGEST_ID, Sender
from tilewise.service.api.routes.modules import BODY, given, imported_of
from tilewise.service.api.schemas import NetworkView, UnfinishedView
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.jobs import model_jobs
from tilewise.service.jobs.queue import Submitter

router = APIRouter(prefix=MODELS, tags=["models"])

ModelId = Annotated[int, Path(ge=1, le=LARGEST_ID)]


@router.post(
    "",
    response_model=NetworkView,
    status_code=HTTPStatus.ACCEPTED,
    responses={
        HTTPStatus.ACCEPTED.value: {
            "model": NetworkView | UnfinishedView,
            "description": "A model with its jobs; or its module is being read: post it again "
            "after `Retry-After` seconds",
        },
        **responses(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
    },
    openapi_extra=BODY,
)
async def post_model(
    request: Request, services: ServicesDep, tuning: Annotated[ModelRequest, Depends()]
) -> JSONResponse:
    """Tune all problems of a module; answer 202 with the model and its jobs.

    The body is that of `/v1/problems/parse`. Only the hash and the problems of the module are
    stored. With `accuracy=strict` all its problems have `accuracy=strict`.
    """
    key, module = await given(request, services)
    found = await imported_of(services, key, module)
    imported = await services.executors.reads.run(partial(found.with_accuracy, tuning.accuracy))
    by = Sender.of(request, services).by
    answer = await services.executors.writes.run(
        partial(_ask, services, (key, imported), tuning, by)
    )
    services.wake()
    return answer


@router.get("/{model_id}", response_model=NetworkView, responses=responses(HTTPStatus.NOT_FOUND))
@in_executor("reads")
def get_model(model_id: ModelId, services: ServicesDep) -> dict[str, Any]:
    """Return a model, with the state of each of its problems."""
    with services.reading() as session:
        return model_json(session, model_jobs.get_model(session, model_id))


def _ask(
    services: Services, module: tuple[str, Imported], tuning: ModelRequest, by: Submitter
) -> JSONResponse:
    (_, imported), search = module, tuning.search
    if not imported.occurrences:
        why = why_none(imported.skipped)
        raise ModuleError(f"the module has no matmul or convolution that can be tuned{why}")
    canonical = services.require_served(tuning.target)
    for found in imported.problems:
        problem = parse_problem(found.problem)
        services.check_memory(problem)
        try:
            check_covered(problem, canonical)
        except UnsupportedError as error:  # the target's code is IREE's, and no spec tunes it
            raise ModuleError(f"{error}; a target cpu:NAME tunes all of the module") from error
    with services.writing() as session:
        of_work = canonical, search, services.toolchain, by
        made = model_jobs.request_tuning(session, module, *of_work)
        answer = model_json(session, made)
    view = NetworkView.model_validate(answer).model_dump(mode="json")
    return JSONResponse(view, HTTPStatus.ACCEPTED, headers={"Location": answer["links"]["self"]})
