"""Send requests to one service: tokens, retries, refusals, pages, and streams of events.

`Service` consists of coroutines. Over a blocking `httpx.Client` they never suspend, so a client
without `async` needs no event loop.
"""

import itertools
import os
import random
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

import httpx

from tilewise.client.events import Follower
from tilewise.errors import (
    BadInputError,
    MissingError,
    NoAnswerError,
    TilewiseError,
    UnreadableError,
    bad_input,
)
from tilewise.kernels.quoting import one_line, quoted, without_password
from tilewise.schema.base import LARGEST_PORT, Json

Client = TypeVar("Client", httpx.Client, httpx.AsyncClient)
Value = TypeVar("Value")
SeenEvent = TypeVar("SeenEvent")

TIMEOUT_S = 30.0
SILENCE_S = 45.0  # of a stream of events, which has a heartbeat every 15 s
MOST_TRIES = 5  # where an answer was lost, or requests come too often
PATIENCE_S = 120.0  # with a service that is unavailable, and says when to retry
MADE_WITHIN_S = 180.0  # a text that the service makes on the first request
RETRY_S = 1.0  # until a request is repeated, where the service does not say
LONGEST_RETRY_S = 10.0
FIRST_BACKOFF_S = 0.25
PAGE = 500  # items of a page
TOKEN = "TILEWISE_TOKEN"


class _LateError(TilewiseError):
    """A gateway had no answer in time; other requests may have one."""


_ERRORS: dict[int, type[TilewiseError]] = {
    HTTPStatus.NOT_FOUND: MissingError,
    HTTPStatus.UNPROCESSABLE_ENTITY: BadInputError,
    HTTPStatus.INTERNAL_SERVER_ERROR: UnreadableError,
    HTTPStatus.BAD_GATEWAY: NoAnswerError,
    HTTPStatus.SERVICE_UNAVAILABLE: NoAnswerError,
    HTTPStatus.GATEWAY_TIMEOUT: _LateError,
}
_HINTS = {
    HTTPStatus.UNAUTHORIZED.value: "; set TILEWISE_TOKEN to a token of this service",
    HTTPStatus.FORBIDDEN.value: "; a token of a larger scope may",
}


@dataclass(frozen=True)
class ApiRequest:
    """A request; `is_safe` allows a repetition, `content` is a body that is not JSON."""

    method: str
    path: str
    params: Json = field(default_factory=dict)
    json: Json | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_safe: bool = True


@dataclass(frozen=True)
class PagePath:
    """Where a page of the list `name` is; later pages have the filters in their path."""

    name: str
    path: str
    params: Json

    @classmethod
    def first(cls, name: str, path: str, **filters: str | None) -> "PagePath":
        """Return the first page of a list."""
        given = {key: value for key, value in filters.items() if value is not None}
        return cls(name, path, given | {"limit": PAGE})


@dataclass(frozen=True)
class ListPage:
    """Some items of a list, and where the next ones are."""

    items: list[Json]
    following: PagePath | None


async def _settled(made: Awaitable[Value] | Value) -> Value:
    return await made if isinstance(made, Awaitable) else made


async def _each(items: Iterable[Value]) -> AsyncIterator[Value]:
    for item in items:
        yield item


class Service:
    """One service, by a client of httpx; over a blocking one no coroutine suspends.

    `patience_s` bounds retries while it is unavailable. The attribute `url` is as messages show it.
    """

    def __init__(
        self,
        url: str,
        http: httpx.AsyncClient | httpx.Client,
        pause: Callable[[float], Awaitable[None] | None],
        patience_s: float,
    ) -> None:
        self.url = checked_url(url)
        self._http, self._pause, self._patience_s = http, pause, patience_s

    async def close(self) -> None:
        """Close the connections."""
        if isinstance(self._http, httpx.AsyncClient):
            await self._http.aclose()
        else:
            self._http.close()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await _settled(self._pause(seconds))

    async def send(self, request: ApiRequest) -> httpx.Response:
        """Return a successful answer.

        Safe requests are repeated with growing pauses after a lost answer, and while patience lasts
        when the service is unavailable. Raises BadInputError, MissingError or TilewiseError if the
        service refuses or is absent.
        """
        if not is_path(request.path):  # another host must not see the token
            raise TilewiseError(f"{quoted(request.path)} is not a path of {self.url}")
        began_s, losses = now_s(), 0
        for number in itertools.count():
            is_last = losses == MOST_TRIES - 1 or not request.is_safe
            try:
                with sendable(self.url):
                    response = await self._once(request)
            except httpx.TransportError as error:
                if is_last:
                    raise NoAnswerError(f"no answer from {self.url}: {one_line(error)}") from error
                pause, is_unavailable = backoff_s(losses), False
            else:
                wanted = pause_s(response, losses)
                is_unavailable = response.status_code == HTTPStatus.SERVICE_UNAVAILABLE
                if wanted is None or not request.is_safe or (is_last and not is_unavailable):
                    return accepted(response)
                pause = wanted
                if is_unavailable:
                    # A service that keeps saying 0 still gets pauses.
                    pause = pause if number < MOST_TRIES else max(pause, RETRY_S)
                    if now_s() + pause > began_s + self._patience_s:
                        return accepted(response)
            losses += not is_unavailable
            await self.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def outlasting(self, ask: Callable[[], Awaitable[Value]]) -> Value:
        """Return what `ask` returns, repeating it for `patience_s` while the service restarts."""
        end_s = now_s() + self._patience_s
        while True:
            try:
                return await ask()
            except (NoAnswerError, _LateError):
                if now_s() + RETRY_S > end_s:
                    raise
            await self.sleep(RETRY_S)

    async def _once(self, request: ApiRequest) -> httpx.Response:
        return await _settled(
            self._http.request(
                request.method,
                request.path,
                params=request.params or None,
                json=request.json,
                content=request.content,
                headers=request.headers,
            )
        )

    @asynccontextmanager
    async def _stream(
        self, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[str]]]:
        """Open a stream of events."""
        timeout = httpx.Timeout(TIMEOUT_S, read=SILENCE_S)
        if isinstance(self._http, httpx.AsyncClient):
            async with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                if not response.is_success:
                    await response.aread()
                yield response, response.aiter_text()
            return
        with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
            if not response.is_success:
                response.read()
            yield response, _each(response.iter_text())

    async def json(self, method: str, path: str, **parts: Any) -> Json:
        """Return the object in the answer."""
        return json_of(await self.send(ApiRequest(method, path, **parts)), self.url)

    async def made(
        self,
        request: ApiRequest,
        on_wait: Callable[[], None] | None,
        is_unfinished: Callable[[httpx.Response], bool] | None = None,
    ) -> httpx.Response:
        """Repeat a request until the service has made its result.

        `on_wait` is called once if that takes time. `is_unfinished` decides whether an answer is
        not final; by default status 202.
        """
        is_unfinished = is_unfinished or is_accepted
        end = now_s() + MADE_WITHIN_S
        response = await self.send(request)
        if is_unfinished(response) and on_wait:
            on_wait()
        while is_unfinished(response):
            pause = retry_after_s(response) or RETRY_S
            if now_s() + pause > end:
                raise TilewiseError(
                    f"{self.url}{request.path} was not generated within {MADE_WITHIN_S:.0f} s; "
                    "the service continues, retry later"
                )
            await self.sleep(pause)
            response = await self.send(request)
        return response

    async def page(self, at: PagePath) -> ListPage:
        """Return one page of a list.

        Raises TilewiseError if the answer has no list or its next page is on another host, which
        would get the token.
        """
        answer = await self.json("GET", at.path, params=at.params)
        items = objects_of(answer, at.name)
        following = answer.get("next", "")
        if following is None:
            return ListPage(items, None)
        if not isinstance(following, str) or not is_path(following):
            raise _of_another_form("next", following, "a path or null")
        return ListPage(items, PagePath(at.name, following, {}))

    async def items(self, first: PagePath) -> AsyncIterator[Json]:
        """Yield every item of all pages of a list."""
        at: PagePath | None = first
        while at is not None:
            page = await self.page(at)
            for item in page.items:
                yield item
            at = page.following

    async def events(self, stream: Follower[SeenEvent]) -> AsyncGenerator[SeenEvent, None]:
        """Yield the events of a job or a plan, reconnecting as needed."""
        while not stream.is_over:
            with suppress(httpx.TransportError):  # counted below, as one that ends too early
                async with aclosing(self._connection(stream)) as events:
                    async for event in events:
                        yield event
            if not stream.is_over:
                stream.lose()
                await self.sleep(stream.retry_after_s or backoff_s(stream.losses))

    async def _connection(self, stream: Follower[SeenEvent]) -> AsyncGenerator[SeenEvent, None]:
        headers = stream.headers
        with sendable(self.url):
            async with self._stream(stream.path, headers) as (response, texts):
                stream.retry_after_s = pause_s(response, stream.losses)
                if stream.retry_after_s is not None:
                    return
                accepted(response)
                async for text in texts:
                    for event in stream.feed(text):
                        yield event


def http_client(kind: Callable[..., Client], url: str, token: str | None, transport: Any) -> Client:
    """Return a client of httpx; raise BadInputError for a URL, token or environment of no use."""
    checked_url(url)
    headers = headers_of(token)
    name = "proxies or certificates of the environment (ALL_PROXY, SSL_CERT_FILE, ...)"
    with bad_input(name, ImportError, OSError, ValueError, httpx.InvalidURL):
        return kind(base_url=url, headers=headers, timeout=TIMEOUT_S, transport=transport)


def headers_of(token: str | None) -> dict[str, str]:
    """Return the headers of every request; raise BadInputError for a malformed token.

    The token defaults to the environment's.
    """
    shown = os.environ.get(TOKEN, "") if token is None else token
    if not shown:
        return {}
    if not shown.isascii() or not shown.isprintable() or " " in shown:
        raise BadInputError(f"{TOKEN} is not a token: it has characters that cannot be sent")
    return {"Authorization": f"Bearer {shown}"}


def checked_url(url: str) -> str:
    """Return a service's URL as messages show it; raise BadInputError for an unusable one."""
    shown = quoted(without_password(url))
    try:
        parsed = httpx.URL(url)
        is_host = bool(parsed.host and parsed.host.encode("idna"))
    except (httpx.InvalidURL, UnicodeError) as error:
        raise BadInputError(f"server {shown} is not a URL: {one_line(error)}") from error
    if parsed.scheme not in ("http", "https") or not is_host:
        raise BadInputError(f"server {shown} is not a URL; write http://HOST:PORT")
    if parsed.port is not None and not 0 < parsed.port <= LARGEST_PORT:
        raise BadInputError(
            f"server {shown}: port={parsed.port} is out of range; give 1 to {LARGEST_PORT}"
        )
    return str(parsed.copy_with(userinfo=b""))


@contextmanager
def sendable(url: str) -> Iterator[None]:
    """Raise BadInputError for what cannot be sent, TilewiseError for what cannot be read."""
    try:
        yield
    except httpx.InvalidURL as error:
        raise BadInputError(f"server {url!r} is not a URL: {error}") from error
    except UnicodeEncodeError as error:
        part = error.object[error.start : error.end]
        raise BadInputError(f"{quoted(part)} cannot be sent") from error
    except (httpx.DecodingError, httpx.TooManyRedirects) as error:
        raise TilewiseError(f"no answer from {url}: {one_line(error)}") from error


def is_path(text: str) -> bool:
    """Return whether a text is a path that names no other host."""
    return text.startswith("/") and text[1:2] not in ("/", "\\")


def accepted(response: httpx.Response) -> httpx.Response:
    """Return a response that is a success or "not modified"; raise the error of a refusal."""
    if response.is_success or response.status_code == HTTPStatus.NOT_MODIFIED:
        return response
    kind = _ERRORS.get(response.status_code, TilewiseError)
    raise kind(_detail(response) + _HINTS.get(response.status_code, ""))


def is_accepted(response: httpx.Response) -> bool:
    """Return whether the result is being made."""
    return response.status_code == HTTPStatus.ACCEPTED


def pause_s(response: httpx.Response, number: int) -> float | None:
    """Return the seconds after which to retry; None for a final answer."""
    status, said = response.status_code, retry_after_s(response)
    if said is not None and status in (503, 429):
        return said
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    is_of_proxy = status in (502, 504) or (status == 503 and kind != "application/problem+json")
    return backoff_s(number) if is_of_proxy else None


def retry_after_s(response: httpx.Response) -> float | None:
    """Return the seconds of `Retry-After`, bounded; None where there is none."""
    text = response.headers.get("Retry-After")
    if text is None:
        return None
    # A date, which HTTP also allows, is of another clock.
    is_whole = text.isascii() and text.isdigit()
    return min(float(text), LONGEST_RETRY_S) if is_whole else RETRY_S


def backoff_s(number: int) -> float:
    """Return a pause that doubles with each try, less up to half of it at random.

    Randomness keeps clients that lost a service together from returning together.
    """
    longest = min(FIRST_BACKOFF_S * 2.0**number, LONGEST_RETRY_S)
    return longest * random.uniform(0.5, 1.0)


def now_s() -> float:
    """Return seconds of a monotonic clock."""
    return time.monotonic()


def json_of(response: httpx.Response, url: str) -> Json:
    """Return the object of an answer; raise TilewiseError if it is none."""
    shown = f"{url}{response.url.path}"
    try:
        answer = response.json()
    except (ValueError, RecursionError) as error:
        raise TilewiseError(f"{shown} did not answer with JSON") from error
    if not isinstance(answer, dict):
        raise TilewiseError(f"{shown} did not answer with an object")
    return answer


def objects_of(answer: Json, name: str) -> list[Json]:
    """Return the objects of a list in an answer; raise TilewiseError if it is none."""
    found = answer.get(name)
    if not isinstance(found, list):
        raise _of_another_form(name, found, "a list")
    for index, one in enumerate(found):
        if not isinstance(one, dict):
            raise _of_another_form(f"{name}[{index}]", one, "an object")
    return found


def _of_another_form(name: str, found: object, wanted: str) -> TilewiseError:
    return TilewiseError(
        f"unexpected answer from the service: {name} is {found!r:.80}, not {wanted}"
    )


def _detail(response: httpx.Response) -> str:
    """Return the service's message on one line."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    detail = body.get("detail") if isinstance(body, Mapping) else None
    if isinstance(detail, str):
        return one_line(detail)
    return f"{response.status_code} from {without_password(str(response.url))}"
