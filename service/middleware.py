"""What holds for every route: the largest body, and HEAD wherever there is GET.

Both are plain ASGI, so that they cost nothing to streams and are not seen by the routes.
"""

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KIB = 1024


class BodyLimit:
    """Refuses bodies of more than `most_bytes` with 413, before they are in memory.

    A declared length is refused unread; a body in chunks is counted as it comes.

    Args:
        app: what is limited; it turns `HTTPException` into an answer.
        most_bytes: of the body as it is sent.
    """

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"")
        received = 0

        async def limited() -> Message:
            nonlocal received
            if declared.isdigit():
                self._require(int(declared))
            message = await receive()
            received += len(message.get("body", b""))
            self._require(received)
            return message

        await self._app(scope, limited, send)

    def _require(self, size: int) -> None:
        """Raise unless a body of `size` bytes is taken.

        Raises:
            HTTPException: 413. It is raised where a route reads its body, so that the answer
                is a problem document as all others are; the rest of the body is not read.
        """
        if size > self._most_bytes:
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
