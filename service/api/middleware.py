"""What holds for every route: the largest body, and HEAD wherever there is GET.

Both are plain ASGI, so that they cost nothing to streams and are not seen by the routes.
"""

from asyncio import timeout
from contextlib import suppress
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KIB = 1024
LINGER_S = 30.0


class BodyLimit:
    """Refuses bodies of more than `most_bytes` with 413, before they are in memory.

    A declared length is refused unread; a body in chunks is counted as it comes. What a client
    is still sending is then let go by, unkept: if the connection closed on it, the client would
    meet a reset in place of the answer (RFC 9112, section 9.6).

    Args:
        app: what is limited; it turns `HTTPException` into an answer.
        most_bytes: of the body as it is sent.
        linger_s: for which the rest of a refused body may go by, in seconds.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, linger_s: float = LINGER_S) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._linger_s = linger_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"")
        size = int(declared) if declared.isdigit() else 0
        body = _Body(receive, send, size, self._most_bytes, self._linger_s)
        await self._app(scope, body.receive, body.send)


class _Body:
    """The body of one request: counted as it is read, and after a refusal let go by.

    Args:
        receive: gives its pieces.
        send: takes the answer.
        declared: bytes that it is said to have; 0 if nothing is said.
        most_bytes: of it.
        linger_s: for which the rest of it may go by.
    """

    def __init__(
        self, receive: Receive, send: Send, declared: int, most_bytes: int, linger_s: float
    ) -> None:
        self._receive, self._send = receive, send
        self._size = declared
        self._most_bytes, self._linger_s = most_bytes, linger_s
        self._received = 0
        self._ended = self._refused = False

    async def receive(self) -> Message:
        """The next piece, for the application.

        Raises:
            HTTPException: 413. It is raised where a route reads its body, so that the answer
                is a problem document as all others are.
        """
        self._require(self._size)
        message = await self._next()
        self._received += len(message.get("body", b""))
        self._require(self._received)
        return message

    async def send(self, message: Message) -> None:
        """A piece of the answer; a refusal ends when the body does."""
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if not (self._refused and is_last):
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        with suppress(TimeoutError):
            async with timeout(self._linger_s):
                while not self._ended:
                    await self._next()
        await self._send({"type": "http.response.body", "body": b""})

    async def _next(self) -> Message:
        message = await self._receive()
        self._ended = not message.get("more_body", False)
        return message

    def _require(self, size: int) -> None:
        if size > self._most_bytes:
            self._refused = True
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body is larger than {self._most_bytes // KIB} KiB, the most that is taken; "
                "send less at once",
                headers={"Connection": "close"},
            )


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
