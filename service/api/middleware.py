"""Middleware of all routes: the largest body, and HEAD for every GET.

Both are plain ASGI, so that they cost nothing to streams and are not seen by the routes.
"""

import time
from asyncio import timeout
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KIB = 1024
IN_FLIGHT_BYTES = 256 * KIB**2
LINGER_S = 30.0
BODY_S = 60.0
RETRY_AFTER_S = 2


class BodyLimit:
    """Refuse bodies of more than `most_bytes` with 413, before they are in memory.

    A declared length is refused unread; a chunked body is counted as it arrives. The rest of a
    refused body is discarded for up to `LINGER_S`, because closing the connection would reset it
    before the client reads the answer (RFC 9112, section 9.6).

    A body that takes more than `most_seconds` gets 408. All bodies together hold at most
    `most_bytes_in_flight`; the next gets 503. Paths in `most_bytes_at` have a budget of their own,
    so that uploads of modules cannot keep small requests out.
    """

    def __init__(
        self,
        app: ASGIApp,
        most_bytes: int,
        most_seconds: float = BODY_S,
        most_bytes_at: Mapping[str, int] | None = None,
        most_bytes_in_flight: int = IN_FLIGHT_BYTES,
    ) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._most_bytes_at = dict(most_bytes_at or {})
        self._most_seconds = most_seconds
        self._most_in_flight = most_bytes_in_flight
        self._in_flight: Counter[int] = Counter()  # by the most bytes of a body, as for modules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        size = int(declared) if declared.isdecimal() else 0
        most_bytes = self._most_bytes_at.get(scope["path"], self._most_bytes)
        reserve = partial(self._reserve, most_bytes)
        body = _Body(receive, send, size, most_bytes, self._most_seconds, reserve)
        try:
            with suppress(ClientDisconnect):  # nobody is left to answer
                await self._app(scope, body.receive, body.send)
        finally:
            self._in_flight[most_bytes] -= body.reserved

    def _reserve(self, most_bytes: int, size: int) -> bool:
        """Count bytes that a body will hold; return False if that is too much."""
        is_free = self._in_flight[most_bytes] + size <= max(most_bytes, self._most_in_flight)
        self._in_flight[most_bytes] += size * is_free
        return is_free


class _Body:
    """The body of one request: counted while it is read, discarded after a refusal.

    `declared` is its content length, or 0. `reserve` says whether more bytes may be held, of which
    it holds `reserved`.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        declared: int,
        most_bytes: int,
        most_seconds: float,
        reserve: Callable[[int], bool],
    ) -> None:
        self._receive, self._send = receive, send
        self._size = declared
        self._most_bytes, self._most_seconds, self._reserve = most_bytes, most_seconds, reserve
        self._received = self.reserved = 0
        self._begun_s = time.monotonic()
        self._ended = self._refused = False

    async def receive(self) -> Message:
        """Return the next piece; raise HTTPException (413) inside the route that reads the body."""
        self._require(self._size)
        if self._ended:  # a route that streams waits for the client to go
            return await self._receive()
        left_s = self._begun_s + self._most_seconds - time.monotonic()
        try:
            async with timeout(left_s):
                message = await self._next()
        except TimeoutError as error:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the body did not arrive within {self._most_seconds:g} s; send it faster",
                headers={"Connection": "close"},
            ) from error
        self._received += len(message.get("body", b""))
        self._require(self._received)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if not (self._refused and is_last):
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        with suppress(TimeoutError):
            async with timeout(LINGER_S):
                while not self._ended:
                    await self._next()
        await self._send({"type": "http.response.body", "body": b""})

    async def _next(self) -> Message:
        message = await self._receive()
        self._ended = not message.get("more_body", False)
        return message

    def _require(self, size: int) -> None:
        most = self._most_bytes
        if size > most:
            self._refused = True
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body exceeds the limit of {most // KIB} KiB; send less at once",
                headers={"Connection": "close"},
            )
        if size > self.reserved:
            if not self._reserve(size - self.reserved):
                self._refused = True
                raise HTTPException(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "the bodies of other requests use all memory set aside for them; retry",
                    headers={"Connection": "close", "Retry-After": str(RETRY_AFTER_S)},
                )
            self.reserved = size


class HeadAsGet:
    """Answers HEAD as GET without the body (RFC 9110, section 9.3.2), on every route.

    A stream, which might never end by itself, is ended at its first piece.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        answered = False

        async def without_body(message: Message) -> None:
            nonlocal answered
            if answered:
                raise OSError("a HEAD request is answered")  # as from a client that has gone
            if message["type"] == "http.response.body":
                answered, message = True, {"type": "http.response.body", "body": b""}
            await send(message)

        try:
            await self._app({**scope, "method": "GET"}, receive, without_body)
        except (OSError, ClientDisconnect):
            if not answered:
                raise
