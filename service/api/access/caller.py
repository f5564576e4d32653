"""The caller of a request: a client with a token, or a browser that has signed in."""

from collections.abc import Collection
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import Request

from tilewise.schema.base import Scope
from tilewise.service.telemetry.requests import REQUEST_ID

TOKEN_COOKIE = "tilewise_token"


def token_in(cookie: str) -> str | None:
    """Return the token of a `Cookie` header, or None."""
    try:
        found = SimpleCookie(cookie).get(TOKEN_COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


CALLER = "tilewise.caller"
"""Where an ASGI scope carries its `Caller`."""


@dataclass(frozen=True)
class Caller:
    """The sender of a request; `token_id` is None without a token."""

    token_id: int | None
    scope: Scope

    @property
    def subject(self) -> str:
        """A name that is stored with what belongs to this caller alone."""
        return "" if self.token_id is None else f"token:{self.token_id}"

    @property
    def only_of(self) -> int | None:
        """The token whose jobs and plans this caller may call off; None for all."""
        return None if self.scope == "admin" else self.token_id


ANYONE = Caller(None, "submit")
"""The caller of a service that requires no tokens; managing tokens requires one nevertheless."""

NOBODY = Caller(None, "read")
"""The caller of a refused request, for the error page."""


def caller_of(request: Request) -> Caller:
    """Return the caller of this request."""
    found: Caller = request.scope.get(CALLER, ANYONE)
    return found


def request_id_of(request: Request) -> str | None:
    """Return the id of this request in logs, or None."""
    found: str | None = request.scope.get(REQUEST_ID)
    return found


SAFE = ("GET", "HEAD")
LOOPBACK_NAME = "localhost"
ANY = "*"


def is_allowed_host(host: str, allowed: Collection[str]) -> bool:
    """Return whether a `Host` header names loopback or one of `allowed`, where `*` allows all."""
    name = host_name(host)
    return ANY in allowed or name in allowed or name == LOOPBACK_NAME or is_loopback(name)


def is_loopback(address: str) -> bool:
    """Return whether a text is a loopback address or name."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str:
    """Return the host of a `Host` header in lower case without port; empty if invalid."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_of_another_page(
    method: str, host: str, origin: str | None, site: str | None, mode: str | None
) -> bool:
    """Return whether a page of another origin caused this request.

    `origin`, `site` and `mode` are the headers `Origin`, `Sec-Fetch-Site` and `Sec-Fetch-Mode`.
    Following a link is navigation, which is allowed.
    """
    is_link = method in SAFE and mode == "navigate"
    if site in ("cross-site", "same-site") and not is_link:
        return True
    if origin is None or (method in SAFE and site is None):
        return False
    return origin.partition("://")[2].lower() != host.lower()
