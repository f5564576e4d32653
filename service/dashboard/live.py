"""What goes on now, pushed to every open overview: read once, however many look at it."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import cast

from fastapi import APIRouter, Request, Response
from fastapi.sse import EventSourceResponse, format_sse_event

from tilewise.service.api.events.news import HEARTBEAT, RETRY
from tilewise.service.api.lanes import Lane
from tilewise.service.dashboard import stored
from tilewise.service.dashboard.rendering import speed
from tilewise.service.db.checked import reading
from tilewise.service.db.session import Sessions
from tilewise.service.errors import BusyError, ServiceError
from tilewise.service.listening import MOST_STREAMS

POLL_S = 1.0
LOOK_S = 0.5  # between two looks at whether the service is about to end
HEARTBEAT_S = 15.0

log = logging.getLogger(__name__)

Read = Callable[[], Awaitable[bytes]]


class Overviews:
    """Streams of the overview; used on one event loop.

    `state` returns a number that changes with the database, or None if unknown. A stream ends after
    `longest_s`, and its page opens another. At most `most_streams` are open.
    """

    def __init__(
        self,
        read: Read,
        state: Callable[[], int | None],
        *,
        longest_s: float = 3600.0,
        poll_s: float = POLL_S,
        most_streams: int = MOST_STREAMS,
    ) -> None:
        self._read, self._state = read, state
        self._longest_s, self._poll_s = longest_s, poll_s
        self._most_streams = most_streams
        self._streams = 0
        self._event = b""
        self._changed = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._is_closing = False

    def close(self) -> None:
        """Let every page go; may be called from a signal handler."""
        self._is_closing = True

    def require_room(self) -> None:
        """Raise BusyError where no more streams are opened."""
        if self._is_closing or self._streams >= self._most_streams:
            raise BusyError(f"{self._streams} overviews are open; try again")

    async def follow(self) -> AsyncIterator[bytes]:
        """The overview, and again whenever it has changed."""
        yield RETRY
        self._streams += 1
        try:
            async for event in self._follow():
                yield event
        finally:
            self._streams -= 1

    async def _follow(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        ends_at, spoke_at, told = loop.time() + self._longest_s, loop.time(), b""
        while not self._is_closing and loop.time() < ends_at:
            changed = self._changed
            if self._event and self._event != told:
                told, spoke_at = self._event, loop.time()
                yield told
            if self._poller is None or self._poller.done():
                self._poller = asyncio.create_task(self._poll())
            try:
                async with asyncio.timeout(LOOK_S):
                    await changed.wait()
            except TimeoutError:
                if loop.time() - spoke_at >= HEARTBEAT_S:
                    spoke_at = loop.time()
                    yield HEARTBEAT

    async def _poll(self) -> None:
        """Read for as long as anybody looks; only a commit can change what a quiet store says."""
        seen: int | None = None
        while self._streams and not self._is_closing:
            now = self._state()
            if now is None or now != seen:
                seen = now if await self._poll_once() else None
            await asyncio.sleep(self._poll_s)

    async def _poll_once(self) -> bool:
        try:
            found = await self._read()
        except ServiceError as error:
            log.debug("overview: %s", error)
            return False
        if found != self._event:
            self._event = found
            self._changed.set()
            self._changed = asyncio.Event()
        return True


def reader(lane: Lane, sessions: Sessions) -> Read:
    """Reads the overview in a lane."""

    def event() -> bytes:
        with reading(sessions) as session:
            found = stored.live(session)
        rows = [job_row(job) for job in found["jobs"]]
        data = json.dumps({"jobs": rows, "machines": found["machines"]})
        return format_sse_event(event="overview", data_str=data)

    return partial(lane.run, event)


def job_row(job: stored.Json) -> stored.Json:
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


def phase_text(phase: stored.Json | None) -> str:
    """What a run does, and how much of it is done."""
    if phase is None:
        return ""
    return f"{phase['name']} {phase['done']}/{phase['total']}" if phase["total"] else phase["name"]


HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

router = APIRouter(include_in_schema=False)


@router.get("/live")
async def get_live(request: Request) -> Response:
    """Server-sent events `overview`: jobs that run or wait, and machines with what they do."""
    overviews = cast("Overviews", request.app.state.overviews)
    overviews.require_room()
    return EventSourceResponse(overviews.follow(), headers=HEADERS)
