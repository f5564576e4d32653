"""What both clients need to reach a service: its URL, its token, and what cannot be sent."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.quoting import one_line, quoted, without_password

TIMEOUT_S = 30.0
SILENCE_S = 45.0  # of a stream of events, which has a heartbeat every 15 s
LARGEST_PORT = 65535
TOKEN = "TILEWISE_TOKEN"


def headers_of(token: str | None) -> dict[str, str]:
    """The headers of every request.

    Args:
        token: what to show; None shows the environment's, if any.

    Raises:
        BadInputError: it is no token, as one with a line end.
    """
    shown = os.environ.get(TOKEN, "") if token is None else token
    if not shown:
        return {}
    if not shown.isascii() or not shown.isprintable() or " " in shown:
        raise BadInputError(f"{TOKEN} is no token: it has characters that cannot be sent")
    return {"Authorization": f"Bearer {shown}"}


def checked_url(url: str) -> str:
    """The URL as messages show it.

    Raises:
        BadInputError: no service can be there.
    """
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
    """What cannot be sent at all is bad input; what cannot be read is no answer.

    Args:
        url: of the service, as messages show it.
    """
    try:
        yield
    except httpx.InvalidURL as error:
        raise BadInputError(f"server {url!r} is not a URL: {error}") from error
    except UnicodeEncodeError as error:
        part = error.object[error.start : error.end]
        raise BadInputError(f"{quoted(part)} is no text that can be sent") from error
    except (httpx.DecodingError, httpx.TooManyRedirects) as error:
        raise TilewiseError(f"no answer from {url}: {one_line(error)}") from error
