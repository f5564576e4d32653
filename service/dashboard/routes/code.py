"""A schedule's code that takes a second: kernel, script of flavor air, inner loop."""

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Request, Response
from markupsafe import Markup

from tilewise.schema.base import Json
from tilewise.service.api.documents import result_json
from tilewise.service.api.routes.jobs import LARGEST_ID
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.dashboard import rendering, stored
from tilewise.service.dashboard.rendering import PageRoute, page
from tilewise.service.db import models
from tilewise.service.errors import UnfinishedError
from tilewise.service.results import scripts
from tilewise.service.results.kernels import MODULE, inner_loop_text, kernel_source, kernel_tag
from tilewise.service.results.stored import Lookup

AGAIN_S = 2

Made = TypeVar("Made")

router = APIRouter(prefix="/schedules", include_in_schema=False, route_class=PageRoute)

Number = Annotated[int, Path(ge=1, le=LARGEST_ID)]


@router.get("/{number}/kernel")
async def kernel(number: Number, request: Request, services: ServicesDep) -> Response:
    """Return the kernel as a Python module."""
    result = await services.executors.reads.run(partial(_result, services, number))
    source = kernel_source(result, result["target"])
    text = await _soon(services.code(source, MODULE))
    file = _served(result, "kernel", "py") if result["is_served"] else {"href": None}
    return await _shown(services, request, {**file, "result": result, "title": "Kernel"},
                        text, rendering.python)  # fmt: skip


@router.get("/{number}/air")
async def air(number: Number, request: Request, services: ServicesDep) -> Response:
    """Return the script of flavor air of the schedule's problem."""
    result = await services.executors.reads.run(partial(_result, services, number))
    key, lookup = result["key"], Lookup(result["target"], services.toolchain, result["cache"])
    make = partial(scripts.make, services.sessions, key, lookup)
    made = await _soon(services.proofs.make((key, lookup.target, lookup.cache), make))
    file = _served(result, "script", "mlir", flavor=scripts.FLAVOR)
    return await _shown(
        services, request, {**file, "result": result, "title": "Script of flavor air"},
        None if made is None else made.text, rendering.mlir,
    )  # fmt: skip


@router.get("/{number}/assembly")
async def assembly(number: Number, request: Request, services: ServicesDep) -> Response:
    """Return the inner loop with its counts and the bound that they imply."""
    result = await services.executors.reads.run(partial(_result, services, number))
    text = await inner_loop(services, result)
    return await _shown(services, request, {"result": result, "title": "Inner loop", "href": None},
                        text, rendering.plain)  # fmt: skip


async def inner_loop(services: Services, result: Json) -> str | None:
    """Return the inner loop of a result; None if it takes longer than a page waits."""
    source = kernel_source(result, result["target"])
    key = ("assembly", kernel_tag(source, services.toolchain))
    text = await _soon(services.kernels.make(key, partial(inner_loop_text, source)))
    return None if text is None else counts_first(text)


def counts_first(text: str) -> str:
    """Return an inner loop with its counts and bound first."""
    loop, found, counts = text.partition("\ncounts ")
    return f"counts {counts}\n{loop}\n" if found else text


def _result(services: Services, number: int) -> Json:
    with services.reading() as session:
        row = stored.schedule_row(session, number)
        result = result_json(session, row, services.toolchain)
        rows = stored.rows_of(session, models.Schedule, row.problem.key)
        served = stored.served(rows, row, services.toolchain)
    return {**result, "number": number, "is_served": served.id == number}


def _served(result: Json, what: str, suffix: str, **query: str) -> dict[str, str]:
    """Where the API serves a text, and what a file of it is called."""
    encoded = urlencode({"target": result["target"], "cache": result["cache"], **query})
    name = "-".join([result["key"][:12], *query.values()])
    return {"href": f"/v1/schedules/{result['key']}/{what}?{encoded}", "file": f"{name}.{suffix}"}


async def _soon(work: Awaitable[Made]) -> Made | None:
    """What is made, or None where it takes longer than a page waits."""
    try:
        return await work
    except UnfinishedError:
        return None


async def _shown(
    services: Services, request: Request, values: Json, text: str | None,
    marked: Callable[[str], Markup],
) -> Response:  # fmt: skip
    status = HTTPStatus.OK if text is not None else HTTPStatus.ACCEPTED
    # Marking a long text takes tenths of a second, which would hold up every other request.
    code = None if text is None else await services.executors.reads.run(partial(marked, text))
    answer = page(request, "code.html", status, **values, code=code)
    if text is None:
        answer.headers["Refresh"] = str(AGAIN_S)
    return answer
