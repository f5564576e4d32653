"""`/v1/schedules`: the best schedule of a problem, its transform script and its kernel."""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from sqlalchemy.orm import Session

from kernels.problem import parse_problem
from search.records import CacheMode
from service import air, queries
from service.db import models
from service.errors import NotFoundError
from service.kernel import kernel_module, kernel_source, kernel_tag
from service.problem_json import responses
from service.results import result_json
from service.schemas import Flavor, ResultView
from service.services import ServicesDep

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])


@router.get("", response_model=ResultView, responses=responses(HTTPStatus.NOT_FOUND))
def get_schedule(
    problem: str,
    services: ServicesDep,
    target: str = "host",
    cache: CacheMode | None = None,
) -> dict[str, Any]:
    """The best schedule; `problem` is a problem string, or its JSON object as text.

    Of those for hot and for cold caches `cache` chooses; by itself the hot one is given.

    One of another toolchain is given, marked `stale`, when there is none of the present one.
    """
    wanted = parse_problem(problem)
    canonical = services.machine.canonical_target(target)
    with services.reading() as session:
        row = queries.find_schedule(session, wanted, canonical, services.toolchain, cache)
        if row is None:
            raise NotFoundError(
                f"no schedule of {wanted} is stored for {canonical}; POST it to /v1/jobs"
            )
        return result_json(session, row, services.toolchain, with_space=True)


@router.get(
    "/{key}/script",
    response_class=Response,
    responses={
        HTTPStatus.OK.value: {"content": {"text/x-mlir": {}}, "description": "The script"},
        HTTPStatus.NOT_MODIFIED.value: {"description": "The client has this text"},
        **responses(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    },
)
def get_script(
    key: str,
    services: ServicesDep,
    target: str = "host",
    flavor: Flavor = "cpu",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The transform script, proven on real MLIR; one that was not is never given.

    A script of flavor air is made and proven when first asked for, in a second or two.
    """
    canonical = services.machine.canonical_target(target)
    with services.reading() as session:
        row = _stored(session, key, canonical, services.toolchain)
        script: models.Script | air.Text | None = queries.proven_script(session, row, flavor)
        stale = queries.is_stale(row, services.toolchain)
    if script is None and flavor == air.FLAVOR:
        script = air.find_or_make(services, key, canonical)
    if script is None:
        raise NotFoundError(f"no proven {flavor} script of {row.problem.canonical} is stored")
    headers = {"ETag": f'"{script.sha256}"', "Tilewise-Stale": str(stale).lower()}
    if if_none_match is not None and _matches(if_none_match, headers["ETag"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(script.text, media_type="text/x-mlir", headers=headers)


@router.get(
    "/{key}/kernel",
    response_class=Response,
    responses={
        HTTPStatus.OK.value: {"content": {"text/x-python": {}}, "description": "The module"},
        HTTPStatus.NOT_MODIFIED.value: {"description": "The client has this text"},
        **responses(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    },
)
def get_kernel(
    key: str,
    services: ServicesDep,
    target: str = "host",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The best schedule's kernel as a Python module that runs on its own."""
    canonical = services.machine.canonical_target(target)
    with services.reading() as session:
        row = _stored(session, key, canonical, services.toolchain)
        result = result_json(session, row, services.toolchain)
    source, stale = kernel_source(result), str(result["stale"]).lower()
    tag = kernel_tag(source, services.toolchain)
    headers = {"ETag": f'"{tag}"', "Tilewise-Stale": stale}
    if if_none_match is not None and _matches(if_none_match, headers["ETag"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(kernel_module(source), media_type="text/x-python", headers=headers)


def _stored(session: Session, key: str, target: str, toolchain: str) -> models.Schedule:
    row = queries.find_schedule(session, key, target, toolchain)
    if row is None:
        raise NotFoundError(f"no schedule of a problem with the key {key} is stored for {target}")
    return row


def _matches(if_none_match: str, etag: str) -> bool:
    """Weak comparison with a list of tags, as RFC 9110 has it for If-None-Match."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or tags == ["*"]
