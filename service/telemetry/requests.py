"""Observe each request: give it an id, count, time and log it."""

import logging
import re
import time
import uuid

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewise.service.telemetry.metrics import Metrics
from tilewise.service.telemetry.traces import Tracing

REQUEST_ID = "tilewise.request_id"
"""Where an ASGI scope carries the request's name in logs."""

ROUTE = "tilewise.route"
"""Where an ASGI scope names the route that has made a cached answer."""

FREQUENT = "/v1/runs/"
"""The calls that each worker sends several times a second; not logged as info."""

SLOW_S = 1.0
FAILED = 500
GONE = 499  # as nginx has it: the client went before it was answered
REFUSED = 400
_HEADER = "x-request-id"
_SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = logging.getLogger(__name__)


class Observed:
    """Observe each request; the outermost middleware. `tracing` is None without traces."""

    def __init__(self, app: ASGIApp, metrics: Metrics, tracing: Tracing | None) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(_HEADER, "")
        name = given if _SANE.fullmatch(given) else uuid.uuid4().hex
        scope[REQUEST_ID] = name
        watched = _Watched(send, name)
        with structlog.contextvars.bound_contextvars(request_id=name):
            begin = time.perf_counter()
            self._metrics.in_flight.inc()
            try:
                await self._serve(scope, receive, watched)
            except Exception:
                watched.status = FAILED
                raise
            finally:
                self._metrics.in_flight.dec()
                self._tell(scope, watched.status, time.perf_counter() - begin)
                if watched.match is not None:
                    self._metrics.count_answer(watched.match)

    async def _serve(self, scope: Scope, receive: Receive, watched: "_Watched") -> None:
        if self._tracing is None:
            await self._app(scope, receive, watched.send)
            return
        with self._tracing.request(scope) as span:
            try:
                await self._app(scope, receive, watched.send)
            finally:
                span.end(_route(scope), watched.status)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        method, route = scope["method"], _route(scope)
        self._metrics.count_request(method, route, status, seconds)
        is_routine = method in ("GET", "HEAD") or scope["path"].startswith(FREQUENT)
        is_news = not is_routine or status >= REFUSED or seconds > SLOW_S
        level = logging.ERROR if status >= FAILED else logging.INFO if is_news else logging.DEBUG
        if log.isEnabledFor(level):
            fields = {
                "method": method, "path": scope["path"], "route": route, "status": status,
                "ms": round(1e3 * seconds, 1),
            }  # fmt: skip
            log.log(level, "request", extra=fields)


class _Watched:
    """Notes what an answer says of itself, and names the request in its headers."""

    def __init__(self, send: Send, name: str) -> None:
        self._send = send
        self._name = name
        self.status = GONE
        self.match: str | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(raw=list(message["headers"]))
            self.match = headers.get("tilewise-match")
            headers.append(_HEADER, self._name)
            message = {**message, "headers": headers.raw}
        await self._send(message)


def _route(scope: Scope) -> str | None:
    """The template of the route that was taken; None where none was."""
    route: str | None = scope.get(ROUTE)
    if route is not None:
        return route
    path: str | None = getattr(scope.get("route"), "path", None)
    return path
