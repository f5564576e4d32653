"""`/v1/jobs/{id}/events`: a job's progress, pushed."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.sse import EventSourceResponse

from tilewise.service.api.problem_details import responses
from tilewise.service.api.routes.jobs import LARGEST_ID, JobId
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.jobs import queue

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

EVENT = {
    "type": "object",
    "description": "`data` is JSON: a phase, a trial or a job, as the routes of jobs give them",
    "properties": {
        "event": {"enum": ["phase", "trial", "end"]},
        "data": {"type": "string"},
        "id": {"type": "string", "description": "the trial's number"},
        "retry": {"type": "integer", "description": "milliseconds"},
    },
}
STREAM: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK.value: {
        "content": {EventSourceResponse.media_type: {"schema": EVENT}},
        "description": "Events `phase`, `trial` (its id is the trial's number) and `end`",
    }
}
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

TrialNumber = Annotated[int | None, Query(ge=-1, le=LARGEST_ID)]
LastEventId = Annotated[int | None, Header(ge=-1, le=LARGEST_ID)]


@router.get(
    "/{job_id}/events",
    response_class=Response,
    responses={**STREAM, **responses(HTTPStatus.NOT_FOUND)},
)
async def get_events(
    job_id: JobId,
    services: ServicesDep,
    after: TrialNumber = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Server-sent events of a job: every trial once and in order, its phases, and its end.

    A stream that is broken off goes on after the trial that `Last-Event-ID` names, or `after`
    where there is no such header. After `end` the stream closes. A stream is closed after an
    hour, and when the service stops: whoever has seen no `end` opens another.
    """
    services.feeds.require_room()
    exists = partial(services.lanes.reads.run, partial(_require_job, services, job_id))
    await services.feeds.require(job_id, exists)
    known = next((one for one in (last_event_id, after) if one is not None), -1)
    return EventSourceResponse(services.feeds.follow(job_id, known), headers=HEADERS)


def _require_job(services: Services, job_id: int) -> None:
    with services.reading() as session:
        queue.get(session, job_id)
