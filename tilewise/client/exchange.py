"""What is sent, and when it is sent again: told as steps, so that it is said once for both clients.

An exchange is a generator. It yields `Ask` and gets the response, `Follow` and gets the job, or
the loss of the connection as an exception; it yields `Pause`, and goes on when that is over.
`carriers` has what carries the steps out, with and without `async` (sans-io.readthedocs.io).
"""

import itertools
import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

import httpx

from tilewise.client.events import Event, Follower
from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.kernels.quoting import one_line, quoted, without_password

Json = dict[str, Any]
Value = TypeVar("Value")

MOST_TRIES = 5  # where an answer was lost, or somebody asks too often
PATIENCE_S = 120.0  # with a service that cannot serve now, and says when to ask again
MADE_WITHIN_S = 180.0  # a text that the service makes when it is first asked for
RETRY_S = 1.0  # until an answer is asked for again, where the service does not say
LONGEST_RETRY_S = 10.0
FIRST_BACKOFF_S = 0.25
_PUT_OFF = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
_GATEWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
_ERRORS: dict[int, type[TilewiseError]] = {
    HTTPStatus.NOT_FOUND: MissingError,
    HTTPStatus.UNPROCESSABLE_ENTITY: BadInputError,
}
_HINTS = {
    HTTPStatus.UNAUTHORIZED.value: "; set TILEWISE_TOKEN to a token of this service",
    HTTPStatus.FORBIDDEN.value: "; a token of a larger scope may",
}


@dataclass(frozen=True)
class Ask:
    """A request.

    Attributes:
        content: the body where it is no JSON.
        is_safe: whether it may be sent again when its answer was lost, or was put off.
    """

    method: str
    path: str
    params: Json = field(default_factory=dict)
    json: Json | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_safe: bool = True


@dataclass(frozen=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Follow:
    """Follow the events of a job to its end; `on_event` is told of what happens."""

    follower: Follower
    on_event: Callable[[Event], None] | None


@dataclass(frozen=True)
class PutOff:
    """Wait for so many seconds and give True; or give False at once, if patience ends before.

    Attributes:
        since_s: the moment from which patience counts, as `now_s` has it.
    """

    seconds: float
    since_s: float

    def is_within(self, patience_s: float) -> bool:
        """Whether somebody of this patience waits for it."""
        return now_s() + self.seconds <= self.since_s + patience_s


Step = Ask | Pause | PutOff | Follow
Exchange = Generator[Step, Any, Value]


def ask(request: Ask, url: str) -> Exchange[httpx.Response]:
    """A successful answer.

    A request that is safe to send again is: with growing pauses where its answer was lost, and
    for as long as the client has patience where the service says that it cannot serve now.

    Raises:
        BadInputError, MissingError, TilewiseError: the service refused it, or is not there.
    """
    if not is_path(request.path):  # whatever lies elsewhere is not to see the token
        raise TilewiseError(f"{quoted(request.path)} is no path of {url}")
    begun_s, losses = now_s(), 0
    for number in itertools.count():
        is_last = losses == MOST_TRIES - 1 or not request.is_safe
        try:
            response: httpx.Response = yield request
        except httpx.TransportError as error:
            if is_last:
                raise TilewiseError(f"no answer from {url}: {one_line(error)}") from error
            pause = backoff_s(losses)
        else:
            said = pause_s(response, losses)
            is_put_off = response.status_code == HTTPStatus.SERVICE_UNAVAILABLE
            if said is None or not request.is_safe or (is_last and not is_put_off):
                return accepted(response)
            pause = said
            if is_put_off:
                # One that says 0 again and again is not asked without a pause.
                is_patient = yield PutOff(
                    pause if number < MOST_TRIES else max(pause, RETRY_S), begun_s
                )
                if not is_patient:
                    return accepted(response)
                continue
        yield Pause(pause)
        losses += 1
    raise AssertionError("the last try returns or raises")


def is_path(text: str) -> bool:
    """Whether a text is a path of the service that is asked, and names no other host."""
    return text.startswith("/") and text[1:2] not in ("/", "\\")


def accepted(response: httpx.Response) -> httpx.Response:
    """The response, if it is a success or says that nothing has changed.

    Raises:
        BadInputError, MissingError, TilewiseError: it is a refusal.
    """
    if response.is_success or response.status_code == HTTPStatus.NOT_MODIFIED:
        return response
    kind = _ERRORS.get(response.status_code, TilewiseError)
    raise kind(_detail(response) + _HINTS.get(response.status_code, ""))


def pause_s(response: httpx.Response, number: int) -> float | None:
    """Seconds after which to ask again; None for an answer that will not change.

    Args:
        response: the answer.
        number: of the try, from 0.
    """
    if response.status_code in _GATEWAY:
        return backoff_s(number)
    return retry_after_s(response) if response.status_code in _PUT_OFF else None


def retry_after_s(response: httpx.Response) -> float | None:
    """Seconds after which the service wants to be asked again, if it says so; at most some."""
    said = response.headers.get("Retry-After")
    if said is None:
        return None
    # A date, which HTTP also allows, is of another clock.
    whole = said.isascii() and said.isdigit()
    return min(float(said), LONGEST_RETRY_S) if whole else RETRY_S


def backoff_s(number: int) -> float:
    """A pause that doubles with each try, of which chance takes up to half.

    Without chance, clients that a service lost at one moment would all come back at another.
    """
    longest = min(FIRST_BACKOFF_S * 2.0**number, LONGEST_RETRY_S)
    return longest * random.uniform(0.5, 1.0)


def json_of(response: httpx.Response, url: str) -> Json:
    """The object of an answer.

    Raises:
        TilewiseError: it is none.
    """
    shown = f"{url}{response.url.path}"
    try:
        answer = response.json()
    except (ValueError, RecursionError) as error:
        raise TilewiseError(f"{shown} did not answer with JSON") from error
    if not isinstance(answer, dict):
        raise TilewiseError(f"{shown} did not answer with an object")
    return answer


def is_accepted(response: httpx.Response) -> bool:
    """Whether what was asked for is being made."""
    return response.status_code == HTTPStatus.ACCEPTED


def made(
    request: Ask,
    url: str,
    on_wait: Callable[[], None] | None,
    is_unfinished: Callable[[httpx.Response], bool] = is_accepted,
) -> Exchange[httpx.Response]:
    """What the service makes when it is asked for it, once it has it."""
    end = now_s() + MADE_WITHIN_S
    response = yield from ask(request, url)
    if is_unfinished(response) and on_wait:
        on_wait()
    while is_unfinished(response):
        pause = retry_after_s(response) or RETRY_S
        if now_s() + pause > end:
            raise TilewiseError(
                f"{url}{request.path} was not made within {MADE_WITHIN_S:.0f} s; "
                "the service goes on, so ask again later"
            )
        yield Pause(pause)
        response = yield from ask(request, url)
    return response


def now_s() -> float:
    """The moment, in seconds of a clock that only goes forward."""
    return time.monotonic()


def _detail(response: httpx.Response) -> str:
    """What the service said, on one line."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    detail = body.get("detail") if isinstance(body, Mapping) else None
    if isinstance(detail, str):
        return one_line(detail)
    return f"{response.status_code} from {without_password(str(response.url))}"
