"""Live updates of the overview, read once for all watchers."""

import json
from collections.abc import Mapping

from fastapi import APIRouter, Response
from fastapi.sse import EventSourceResponse, format_sse_event

from tilewise.schema.base import Json
from tilewise.service.api.events.news import EncodedEvent, NewsReader, Source
from tilewise.service.api.routes.events import HEADERS
from tilewise.service.api.services import ServicesDep
from tilewise.service.dashboard import stored
from tilewise.service.dashboard.rendering import speed
from tilewise.service.db.checked import reading
from tilewise.service.errors import ServiceError

POLL_S = 1.0
OVERVIEW: Source = ("overview", 0)


class OverviewReader(NewsReader):
    """Reads the overview, as a phase that never ends."""

    def _every(
        self, known: Mapping[Source, int | None]
    ) -> dict[Source, EncodedEvent | ServiceError]:
        with reading(self.sessions) as session:
            found = stored.live(session)
        rows = [job_row(job) for job in found["jobs"]]
        data = json.dumps({"jobs": rows, "machines": found["machines"]})
        event = format_sse_event(event="overview", data_str=data)
        return dict.fromkeys(known, EncodedEvent(-1, (), event, None, is_settled=True))


def job_row(job: Json) -> Json:
    """Return a search as a row of text."""
    phase, best, trials = job["phase"], job["best"], job["trials"]
    ended = trials["timed"] + trials["pruned"] + trials["failed"]
    return {
        "id": job["id"],
        "problem": job["problem"],
        "target": job["target"],
        "state": job["state"],
        "phase": phase_text(phase),
        "trials": f"{ended}/{trials['asked']}",
        "best": speed(best["gflops"]) if best else "",
    }


def phase_text(phase: Json | None) -> str:
    """Return the phase of a run and its progress as text."""
    if phase is None:
        return ""
    return f"{phase['name']} {phase['done']}/{phase['total']}" if phase["total"] else phase["name"]


router = APIRouter(include_in_schema=False)


@router.get("/live")
async def get_live(services: ServicesDep) -> Response:
    """Stream events `overview`: running and queued jobs, and machines with their work."""
    services.overviews.require_room()
    return EventSourceResponse(services.overviews.follow(OVERVIEW, -1), headers=HEADERS)
