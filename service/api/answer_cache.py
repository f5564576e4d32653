"""A cache of answers, valid until the database changes.

An answer is kept with the number of the database's state before it was made, and given again
for as long as that is the state. So nobody gets what a commit, of whatever process, has made
old; and what stands between the client and the text is a comparison of numbers.
"""

from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewise.service.telemetry.requests import ROUTE

RawHeaders = tuple[tuple[bytes, bytes], ...]
Key = tuple[str, bytes]

PATHS = "/v1/schedules/"
MOST_BYTES = 64 * 1024**2
LARGEST_BYTES = 4 * 1024**2
OVERHEAD = 2048  # bytes of an answer's key and objects
LONGEST_QUERY = 1024  # bytes
WHOLE = ("http.response.start", "http.response.body")


def matches(if_none_match: str, etag: str) -> bool:
    """Compare weakly with a list of tags, as RFC 9110 defines for If-None-Match."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or tags == ["*"]


def not_modified(headers: dict[str, str], if_none_match: str | None) -> Response | None:
    """Return the answer 304 if the client has what the `ETag` among the headers names."""
    if if_none_match is None or not matches(if_none_match, headers["ETag"]):
        return None
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)


@dataclass(frozen=True)
class Answer:
    """An answer with a strong entity tag.

    `state` is the database state that it was made from. `body` is None if the client had it.
    """

    state: int
    etag: str
    headers: RawHeaders
    body: bytes | None

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        return OVERHEAD + len(self.body or b"") + sum(map(len, sum(self.headers, ())))

    async def send(self, send: Send, if_none_match: str | None) -> bool:
        """Send it, or that the client has it; False, with nothing sent, where neither is known."""
        body, headers, status = self.body, self.headers, HTTPStatus.OK
        if if_none_match is not None and matches(if_none_match, self.etag):
            body, status = b"", HTTPStatus.NOT_MODIFIED
            headers = tuple(pair for pair in headers if not pair[0].startswith(b"content-"))
        if body is None:
            return False
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return True


class AnswerCache:
    """Repeat answers, by path and query, while the database is unchanged.

    Cached are answers to GET below `PATHS` with a strong entity tag, because they depend on path,
    query and database alone. Access control must run before this. The least recently used answers
    go first once they hold `MOST_BYTES`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._bytes = 0
        self._kept: OrderedDict[Key, Answer] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        is_kept = scope["type"] == "http" and scope["method"] == "GET"
        is_kept = is_kept and len(scope["query_string"]) <= LONGEST_QUERY
        if not is_kept or not scope["path"].startswith(PATHS):
            await self._app(scope, receive, send)
            return
        state = scope["app"].state.services.changes.number()
        key = scope["path"], scope["query_string"]
        answer = self._kept.get(key)
        if answer is not None and answer.state == state:
            self._kept.move_to_end(key)
            scope[ROUTE] = f"{PATHS}{{key}}/{scope['path'].rpartition('/')[2]}"
            known = Headers(scope=scope).getlist("if-none-match")
            if await answer.send(send, ", ".join(known) or None):
                return
        keep = None if state is None else _Listener(state, send)
        await self._app(scope, receive, send if keep is None else keep.send)
        if keep is not None and (made := keep.answer()) is not None:
            self._keep(key, made)

    def _keep(self, key: Key, answer: Answer) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self._bytes -= old.size
        self._kept[key] = answer
        self._bytes += answer.size
        while self._bytes > MOST_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.size


class _Listener:
    """Passes one answer on, and remembers it where it may be kept."""

    def __init__(self, state: int, send: Send) -> None:
        self._state, self._send = state, send
        self._messages: list[Message] = []

    async def send(self, message: Message) -> None:
        if len(self._messages) <= len(WHOLE):
            self._messages.append(message)
        await self._send(message)

    def answer(self) -> Answer | None:
        """Return the answer if it is complete and has a strong tag, or None."""
        if tuple(message["type"] for message in self._messages) != WHOLE:
            return None
        start, end = self._messages
        headers, status, body = tuple(start["headers"]), start["status"], end.get("body", b"")
        etag = Headers(raw=list(headers)).get("etag", "")
        if not etag.startswith('"') or len(body) > LARGEST_BYTES:
            return None
        if status == HTTPStatus.NOT_MODIFIED:
            return Answer(self._state, etag, headers, None)
        return Answer(self._state, etag, headers, body) if status == HTTPStatus.OK else None
