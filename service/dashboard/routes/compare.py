"""Two results side by side: speeds, loop nests, steps, and the lines of their code."""

from asyncio import gather
from functools import partial
from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from tilewise.kernels.errors import KernelsError
from tilewise.schema.base import Json
from tilewise.service.api.documents import best_json
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.dashboard import rendering, stored
from tilewise.service.dashboard.rendering import PageRoute, page
from tilewise.service.dashboard.routes.code import AGAIN_S, inner_loop
from tilewise.service.dashboard.routes.pages import ResultName, result_link
from tilewise.service.db import models
from tilewise.service.errors import ConflictError
from tilewise.service.plots import nest
from tilewise.service.results import scripts

router = APIRouter(include_in_schema=False, route_class=PageRoute)

CodeKind = Literal["script", "assembly"]


@router.get("/compare")
async def compare(
    request: Request, services: ServicesDep, left: ResultName, right: ResultName,
    code: CodeKind = "script",
) -> Response:  # fmt: skip
    """Return the comparison of two results: speed, nest, steps and code."""
    reads = services.executors.reads
    sides = await reads.run(partial(_sides, services, (left, right)))
    if code == "assembly":
        await gather(*(_add_inner_loop(services, side) for side in sides))
    first, second = sides
    texts = [side["text"].splitlines() for side in sides]
    is_unfinished = any(side["is_unfinished"] for side in sides)
    shown = page(
        request,
        "compare.html",
        HTTPStatus.ACCEPTED if is_unfinished else HTTPStatus.OK,
        sides=sides,
        ratio=second["gflops"] / first["gflops"],
        tells_apart=first["low"] > second["high"] or second["low"] > first["high"],
        is_single=any(side["low"] == side["high"] for side in sides),
        steps=rendering.differences(first["steps"], second["steps"]),
        code=code,
        lines=await reads.run(partial(rendering.differences, *texts)),
    )
    if is_unfinished:
        shown.headers["Refresh"] = str(AGAIN_S)
    return shown


async def _add_inner_loop(services: Services, side: Json) -> None:
    """Replace the text of a side by its inner loop, or by the reason why there is none."""
    try:
        made = await inner_loop(services, {name: side[name] for name in _OF_KERNEL})
        side.update(text=made or "", reason="", is_unfinished=made is None)
    except (ConflictError, KernelsError) as error:
        side.update(text="", reason=str(error))


_OF_KERNEL = ("problem", "target", "toolchain", "best")


def _sides(services: Services, named: tuple[str, str]) -> list[Json]:
    with services.reading() as session:
        return [_side(session, stored.result_row(session, one), services) for one in named]


def _side(session: Session, row: models.Schedule | models.PastSchedule, services: Services) -> Json:
    """Return one of two results to compare."""
    script = None
    if isinstance(row, models.Schedule):
        script = scripts.proven_script(session, row, scripts.searched_flavor(row.target))
    return {
        **result_link(row, services),
        "problem": row.problem.canonical,
        "key": row.problem.key,
        "best": best_json(row),
        "steps": stored.steps_text(row.steps),
        "nest": nest.drawn(row.problem.canonical, row.steps),
        "text": "" if script is None else script.text,
        "reason": "no script is stored for it" if script is None else "",
        "is_unfinished": False,
    }
