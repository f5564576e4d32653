"""`/v1/jobs/{id}/events` and `/v1/plans/{id}/events`: progress, pushed."""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.sse import EventSourceResponse
from sqlalchemy.orm import Session

from tilewise.service.api.events.news import Source
from tilewise.service.api.model_documents import PLANS
from tilewise.service.api.problem_details import responses
from tilewise.service.api.routes.jobs import LARGEST_ID, JobId
from tilewise.service.api.routes.plans import PlanId
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.jobs import model_jobs, queue

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
plans = APIRouter(prefix=PLANS, tags=["plans"])

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

Number = Annotated[int | None, Query(ge=-1, le=LARGEST_ID)]
LastEventId = Annotated[int | None, Header(ge=-1, le=LARGEST_ID)]


def _described(part: str, data: str, number: str, summary: str) -> dict[int | str, dict[str, Any]]:
    """Return the responses of a stream of events `phase`, `end` and one for each part."""
    event = {
        "type": "object",
        "description": f"`data` is JSON: {data}",
        "properties": {
            "event": {"enum": ["phase", part, "end"]},
            "data": {"type": "string"},
            "id": {"type": "string", "description": number},
            "retry": {"type": "integer", "description": "milliseconds"},
        },
    }
    stream = {"content": {EventSourceResponse.media_type: {"schema": event}}}
    return {
        HTTPStatus.OK.value: {**stream, "description": summary},
        **responses(HTTPStatus.NOT_FOUND),
    }


@router.get(
    "/{job_id}/events",
    response_class=Response,
    responses=_described(
        "trial",
        "a phase, a trial or a job, as the routes of jobs give them",
        "the trial's number",
        "Events `phase`, `trial` (its id is the trial's number) and `end`",
    ),
)
async def get_events(
    job_id: JobId, services: ServicesDep, after: Number = None, last_event_id: LastEventId = None
) -> Response:
    """Stream a job's events: every trial once and in order, its phases, and its end.

    A broken stream resumes after the trial in `Last-Event-ID`, or in `after` without that header.
    The stream closes after `end`, after an hour, and when the service stops: a client that has
    not received `end` opens another.
    """
    return await _stream(services, ("job", job_id), queue.get, last_event_id, after)


@plans.get(
    "/{plan_id}/events",
    name="get_events",
    response_class=Response,
    responses=_described(
        "part",
        "a phase, a problem with how many have ended, or the plan without its problems",
        "the problem's number among those that have ended",
        "Events `phase`, `part` and `end`",
    ),
)
async def get_events_of_plan(
    plan_id: PlanId, services: ServicesDep, after: Number = None, last_event_id: LastEventId = None
) -> Response:
    """Stream a plan's events: each problem once its job has ended, phases, and its end.

    All clients receive the problems in the same order.

    A broken stream resumes after the problem in `Last-Event-ID`, or in `after` without that header.
    The stream closes after `end`, after an hour, and when the service stops: a client that has
    not received `end` opens another.
    """
    return await _stream(services, ("plan", plan_id), model_jobs.get_plan, last_event_id, after)


async def _stream(
    services: Services, source: Source, get: Callable[[Session, int], object], *cursors: int | None
) -> Response:
    """Stream the events after the first cursor that is given, of what `get` finds."""

    def require() -> None:
        with services.reading() as session:
            get(session, source[1])

    services.feeds.require_room()
    await services.feeds.require(source, partial(services.executors.reads.run, require))
    known = next((one for one in cursors if one is not None), -1)
    return EventSourceResponse(services.feeds.follow(source, known), headers=HEADERS)
