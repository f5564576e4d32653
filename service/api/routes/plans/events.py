"""`/v1/plans/{id}/events`: a plan's progress, pushed."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.sse import EventSourceResponse

from tilewise.service.api.problem_details import responses
from tilewise.service.api.routes.events import HEADERS
from tilewise.service.api.routes.jobs import LARGEST_ID
from tilewise.service.api.routes.plans.asking import PlanId
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.plans import rows
from tilewise.service.plans.documents import PATH

router = APIRouter(prefix=PATH, tags=["plans"])

EVENT = {
    "type": "object",
    "description": "`data` is JSON: a phase, a problem with how many have ended, or the plan "
    "without its problems",
    "properties": {
        "event": {"enum": ["phase", "part", "end"]},
        "data": {"type": "string"},
        "id": {"type": "string", "description": "the problem's number among those that have ended"},
        "retry": {"type": "integer", "description": "milliseconds"},
    },
}
STREAM: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK.value: {
        "content": {EventSourceResponse.media_type: {"schema": EVENT}},
        "description": "Events `phase`, `part` and `end`",
    }
}

PartNumber = Annotated[int | None, Query(ge=-1, le=LARGEST_ID)]
LastEventId = Annotated[int | None, Header(ge=-1, le=LARGEST_ID)]


@router.get(
    "/{plan_id}/events",
    response_class=Response,
    responses={**STREAM, **responses(HTTPStatus.NOT_FOUND)},
)
async def get_events(
    plan_id: PlanId,
    services: ServicesDep,
    after: PartNumber = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Server-sent events of a plan: each problem once its job has ended, phases, and its end.

    Problems come in one order for all who follow, whatever clocks say.

    A stream that is broken off goes on after the problem that `Last-Event-ID` names, or `after`
    where there is no such header. After `end` the stream closes. A stream is closed after an
    hour, and when the service stops: whoever has seen no `end` opens another.
    """
    services.plan_feeds.require_room()
    exists = partial(services.lanes.reads.run, partial(_require_plan, services, plan_id))
    await services.plan_feeds.require(plan_id, exists)
    known = next((one for one in (last_event_id, after) if one is not None), -1)
    return EventSourceResponse(services.plan_feeds.follow(plan_id, known), headers=HEADERS)


def _require_plan(services: Services, plan_id: int) -> None:
    with services.reading() as session:
        rows.get(session, plan_id)
