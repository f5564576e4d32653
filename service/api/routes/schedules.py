"""`/v1/schedules`: the best schedule of a problem, its transform script and its kernel."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from sqlalchemy.orm import Session

from kernels.problem import parse_problem
from search.records import CacheMode
from service.api.answer_cache import matches
from service.api.documents import result_json
from service.api.lanes import in_lane
from service.api.problem_details import responses, text_responses
from service.api.schemas import Flavor, ProblemKey, ResultView
from service.api.services import Services, ServicesDep
from service.db import models
from service.errors import NotFoundError
from service.results import air_scripts, schedules, scripts
from service.results.kernel_modules import kept_module, kernel_module, kernel_source, kernel_tag
from service.results.stored import StoredScript

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])


@router.get("", response_model=ResultView, responses=responses(HTTPStatus.NOT_FOUND))
@in_lane("reads")
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
        row = schedules.find_schedule(session, wanted, canonical, services.toolchain, cache)
        if row is None:
            raise NotFoundError(
                f"no schedule of {wanted} is stored for {canonical}; POST it to /v1/jobs"
            )
        return result_json(session, row, services.toolchain, with_space=True)


@router.get("/{key}/script", response_class=Response, responses=text_responses("text/x-mlir"))
async def get_script(
    key: ProblemKey,
    services: ServicesDep,
    target: str = "host",
    flavor: Flavor = "cpu",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The transform script, proven on real MLIR; one that was not is never given.

    A script of flavor air is made and proven when first asked for, in a second or two. Where
    that takes longer than a request waits, the answer is 202 and the script is there soon.
    """
    canonical = services.machine.canonical_target(target)
    script, stale = await services.lanes.reads.run(
        partial(_find_script, services, key, canonical, flavor)
    )
    if script is None:
        making = partial(air_scripts.make, services.sessions, services.toolchain, key, canonical)
        script = await services.proofs.make((key, canonical), making)
    headers = _headers(script.sha256, stale=stale)
    if if_none_match is not None and matches(if_none_match, headers["ETag"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(script.text, media_type="text/x-mlir", headers=headers)


@router.get("/{key}/kernel", response_class=Response, responses=text_responses("text/x-python"))
async def get_kernel(
    key: ProblemKey,
    services: ServicesDep,
    target: str = "host",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The best schedule's kernel as a Python module that runs on its own.

    It is printed when first asked for, in a second. Where that takes longer than a request
    waits, the answer is 202 and the module is there soon.
    """
    canonical = services.machine.canonical_target(target)
    result = await services.lanes.reads.run(partial(_find_result, services, key, canonical))
    source = kernel_source(result)
    tag = kernel_tag(source, services.toolchain)
    headers = _headers(tag, stale=result["stale"])
    if if_none_match is not None and matches(if_none_match, headers["ETag"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    text = await services.lanes.reads.run(partial(kept_module, tag))
    if text is None:
        text = await services.kernels.make(tag, partial(kernel_module, tag, source))
    return Response(text, media_type="text/x-python", headers=headers)


def _find_script(
    services: Services, key: str, target: str, flavor: Flavor
) -> tuple[StoredScript | air_scripts.Text | None, bool]:
    """The script, None for an air script that nobody has asked for yet; whether it is stale."""
    with services.reading() as session:
        found = scripts.served_script(session, key, target, flavor, services.toolchain)
        if found is None:
            raise _missing(key, target)
        if found.script is None and flavor == air_scripts.FLAVOR:
            return air_scripts.find(
                session, _stored(session, key, target, services.toolchain)
            ), found.stale
        if found.script is None:
            raise NotFoundError(f"no proven {flavor} script of {found.problem} is stored")
        return found.script, found.stale


def _find_result(services: Services, key: str, target: str) -> dict[str, Any]:
    with services.reading() as session:
        row = _stored(session, key, target, services.toolchain)
        return result_json(session, row, services.toolchain)


def _stored(session: Session, key: str, target: str, toolchain: str) -> models.Schedule:
    row = schedules.find_schedule(session, key, target, toolchain)
    if row is None:
        raise _missing(key, target)
    return row


def _missing(key: str, target: str) -> NotFoundError:
    return NotFoundError(f"no schedule of a problem with the key {key} is stored for {target}")


def _headers(tag: str, *, stale: bool) -> dict[str, str]:
    return {"ETag": f'"{tag}"', "Tilewise-Stale": str(stale).lower()}
