"""`/v1/schedules/lookup`: the best schedules of many problems at once."""

from typing import Any

from fastapi import APIRouter, Response
from pydantic_core import to_json

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.service.api import files
from tilewise.service.api.documents import Json
from tilewise.service.api.lanes import in_lane
from tilewise.service.api.requests import LookupRequest
from tilewise.service.api.schemas import LookupView
from tilewise.service.api.services import ServicesDep
from tilewise.service.results.nearest import Asked

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])


@router.post("/lookup", response_model=LookupView)
@in_lane("reads")
def look_up(body: LookupRequest, services: ServicesDep) -> Response:
    """The best schedules of many problems at once, as `GET /v1/schedules` has each.

    With `files` the answer names the entity tag of each script and kernel, and with `known` it
    is short where the client has them all: one conditional request for a whole folder.
    """
    wanted = [_parse(index, problem) for index, problem in enumerate(body.problems)]
    target = services.machine.canonical_target(body.target)
    asked = Asked(target, services.toolchain, body.cache, body.match)
    with services.reading() as session:
        found = files.look_up(session, wanted, asked, body.files, body.known)
    for one in found["schedules"]:
        services.metrics.count_answer(_kind(one))
    # To validate a thousand results would take as long as all else, on the thread of all requests.
    return Response(to_json(found, inf_nan_mode="null"), media_type="application/json")


def _kind(found: Json) -> str | None:
    """How near an answer is; what a client has already is what it was given."""
    if found["unchanged"]:
        return "exact"
    schedule = found["schedule"]
    kind: str | None = schedule and schedule["match"]["kind"]
    return kind


def _parse(index: int, source: str | dict[str, Any]) -> Problem:
    """The problem; an error names its place in the list."""
    try:
        return parse_problem(source)
    except ProblemError as error:
        raise ProblemError(str(error), f"problems.{index}") from error
