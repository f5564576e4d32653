"""`/v1/schedules/lookup`: the best schedules of many problems at once."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response
from pydantic_core import to_json

from kernels.errors import ProblemError
from kernels.problem import Problem, parse_problem
from service.api.documents import Json, results_json
from service.api.files import FilesOf
from service.api.lanes import in_lane
from service.api.problem_details import TAMPERED
from service.api.requests import FileKind, LookupRequest
from service.api.schemas import LookupView
from service.api.services import ServicesDep
from service.db import models
from service.errors import TamperedError
from service.results import nearest
from service.results.nearest import Asked

DEFAULTS: Json = {"error": None, "unchanged": False, "files": {}}

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
        keys = {problem.key for problem in wanted}
        rows = nearest.find(session, keys, asked, services.machine)
        found = results_json(session, list(rows.values()), services.toolchain, target)
        files = FilesOf.look_up(session, list(rows.values()), body.files, asked)
    answers = {key: _answer(row, found[row.id], files, body) for key, row in rows.items()}
    nothing = {"schedule": None, "files": dict.fromkeys(body.files)}
    document = {
        "target": target,
        "toolchain": services.toolchain,
        "schedules": [
            {"problem": one.canonical, "key": one.key, **DEFAULTS, **answers.get(one.key, nothing)}
            for one in wanted
        ],
    }
    # To validate a thousand results would take as long as all else, on the thread of all requests.
    return Response(to_json(document, inf_nan_mode="null"), media_type="application/json")


def _answer(
    row: models.Schedule, found: Json | TamperedError, files: FilesOf, body: LookupRequest
) -> Json:
    """A result, or why it is refused; one bad row does not cost the other answers."""
    if isinstance(found, TamperedError):
        error = {"type": TAMPERED, "detail": str(found)}
        return {"schedule": None, "error": error, "files": dict.fromkeys(body.files)}
    made = files.of(row, found)
    known = body.known.get(row.problem.key, {})
    if made and all(_has(known, kind, one) for kind, one in made.items()):
        return {"schedule": None, "unchanged": True}
    return {"schedule": found, "files": made}


def _has(known: Mapping[FileKind, str], kind: FileKind, one: Json | None) -> bool:
    """Whether a client's tags say that it has a file."""
    return one is not None and one["etag"] is not None and known.get(kind) == one["etag"]


def _parse(index: int, source: str | dict[str, Any]) -> Problem:
    """The problem; an error names its place in the list."""
    try:
        return parse_problem(source)
    except ProblemError as error:
        raise ProblemError(str(error), f"problems.{index}") from error
