"""`/v1/schedules/lookup`: the best schedules of many problems at once."""

from typing import Any

from fastapi import APIRouter

from kernels.errors import ProblemError
from kernels.problem import Problem, parse_problem
from service import queries
from service.lanes import in_lane
from service.results import result_json
from service.schemas import LookupRequest, LookupView
from service.services import ServicesDep

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])


@router.post("/lookup", response_model=LookupView)
@in_lane("reads")
def look_up(body: LookupRequest, services: ServicesDep) -> dict[str, Any]:
    """The best schedules of many problems at once, as `GET /v1/schedules` has each."""
    wanted = [_parse(index, problem) for index, problem in enumerate(body.problems)]
    canonical = services.machine.canonical_target(body.target)
    with services.reading() as session:
        keys = {problem.key for problem in wanted}
        rows = queries.find_schedules(session, keys, canonical, services.toolchain, body.cache)
        found = {key: result_json(session, row, services.toolchain) for key, row in rows.items()}
    answers = [{"problem": one.canonical, "schedule": found.get(one.key)} for one in wanted]
    return {"target": canonical, "schedules": answers}


def _parse(index: int, source: str | dict[str, Any]) -> Problem:
    """The problem; an error names its place in the list."""
    try:
        return parse_problem(source)
    except ProblemError as error:
        raise ProblemError(str(error), f"problems.{index}") from error
