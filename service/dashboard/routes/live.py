"""What an open overview is told."""

from typing import cast

from fastapi import APIRouter, Request, Response
from fastapi.sse import EventSourceResponse

from tilewise.service.dashboard.live import Overviews

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

router = APIRouter(include_in_schema=False)


@router.get("/live")
async def get_live(request: Request) -> Response:
    """Server-sent events `overview`: jobs that run or wait, and machines with what they do."""
    overviews = cast("Overviews", request.app.state.overviews)
    overviews.require_room()
    return EventSourceResponse(overviews.follow(), headers=HEADERS)
