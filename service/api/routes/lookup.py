"""`/v1/schedules/lookup`: the best schedules of many problems at once."""

from typing import Any

from fastapi import APIRouter

from kernels.errors import ProblemError
from kernels.problem import Problem, parse_problem
from service.api.documents import Json, results_json
from service.api.lanes import in_lane
from service.api.problem_details import TAMPERED
from service.api.requests import LookupRequest
from service.api.schemas import LookupView
from service.api.services import ServicesDep
from service.errors import TamperedError
from service.results import schedules

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])


@router.post("/lookup", response_model=LookupView)
@in_lane("reads")
def look_up(body: LookupRequest, services: ServicesDep) -> dict[str, Any]:
    """The best schedules of many problems at once, as `GET /v1/schedules` has each."""
    wanted = [_parse(index, problem) for index, problem in enumerate(body.problems)]
    canonical = services.machine.canonical_target(body.target)
    with services.reading() as session:
        keys = {problem.key for problem in wanted}
        rows = schedules.find_schedules(session, keys, canonical, services.toolchain, body.cache)
        found = results_json(session, list(rows.values()), services.toolchain)
    answers = {key: _answer(found[row.id]) for key, row in rows.items()}
    return {
        "target": canonical,
        "schedules": [
            {"problem": one.canonical, **answers.get(one.key, {"schedule": None})} for one in wanted
        ],
    }


def _answer(found: Json | TamperedError) -> Json:
    """A result, or why it is refused; one bad row does not cost the other answers."""
    if isinstance(found, TamperedError):
        return {"schedule": None, "error": {"type": TAMPERED, "detail": str(found)}}
    return {"schedule": found}


def _parse(index: int, source: str | dict[str, Any]) -> Problem:
    """The problem; an error names its place in the list."""
    try:
        return parse_problem(source)
    except ProblemError as error:
        raise ProblemError(str(error), f"problems.{index}") from error
