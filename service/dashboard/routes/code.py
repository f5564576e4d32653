"""A schedule's code: its kernel, and the inner loop as machine code. Each takes a second."""

from collections.abc import Callable, Hashable
from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from markupsafe import Markup

from service.api.documents import result_json
from service.api.routes.jobs import LARGEST_ID
from service.api.services import Services, ServicesDep
from service.dashboard import highlight, stored
from service.dashboard.rendering import PageRoute, page
from service.errors import UnfinishedError
from service.results.inner_loop import inner_loop_text
from service.results.kernel_modules import kept_module, kernel_module, kernel_source, kernel_tag

AGAIN_S = 2

router = APIRouter(prefix="/schedules", include_in_schema=False, route_class=PageRoute)

Number = Annotated[int, Path(ge=1, le=LARGEST_ID)]


@router.get("/{number}/kernel")
async def kernel(number: Number, request: Request, services: ServicesDep) -> Response:
    """The kernel as a Python module."""
    result = await services.lanes.reads.run(partial(_result, services, number))
    source = kernel_source(result, result["target"])
    tag = kernel_tag(source, services.toolchain)
    text = await services.lanes.reads.run(partial(kept_module, tag))
    if text is None:
        text = await _made(services, tag, partial(kernel_module, tag, source))
    return _shown(request, result, "Kernel", None if text is None else highlight.python(text))


@router.get("/{number}/assembly")
async def assembly(number: Number, request: Request, services: ServicesDep) -> Response:
    """The inner loop with its counts and the bound that they imply."""
    result = await services.lanes.reads.run(partial(_result, services, number))
    source = kernel_source(result, result["target"])
    key = ("assembly", kernel_tag(source, services.toolchain))
    text = await _made(services, key, partial(inner_loop_text, source))
    return _shown(request, result, "Inner loop", None if text is None else highlight.plain(text))


def _result(services: Services, number: int) -> stored.Json:
    with services.reading() as session:
        return result_json(session, stored.schedule_row(session, number), services.toolchain)


async def _made(services: Services, key: Hashable, work: Callable[[], str]) -> str | None:
    """What is made, or None where it takes longer than a page waits."""
    try:
        return await services.kernels.make(key, work)
    except UnfinishedError:
        return None


def _shown(request: Request, result: stored.Json, title: str, code: Markup | None) -> Response:
    status = HTTPStatus.OK if code is not None else HTTPStatus.ACCEPTED
    answer = page(request, "code.html", status, title=title, result=result, code=code)
    if code is None:
        answer.headers["Refresh"] = str(AGAIN_S)
    return answer
