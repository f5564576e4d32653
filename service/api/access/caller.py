"""Who has sent a request, as the routes see it."""

from dataclasses import dataclass

from fastapi import Request

from tilewise.schema.base import Scope
from tilewise.service.telemetry.requests import REQUEST_ID

CALLER = "tilewise.caller"
"""Where an ASGI scope carries its `Caller`."""


@dataclass(frozen=True)
class Caller:
    """Who has sent a request.

    Attributes:
        token_id: the token that was shown; None where none was, nor had to be.
        scope: what it may do.
    """

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
"""Whoever reaches a service that asks for no tokens; to manage tokens takes one nevertheless."""

NOBODY = Caller(None, "read")
"""Whoever is refused, for the page that says so."""


def caller_of(request: Request) -> Caller:
    """Who has sent this request."""
    found: Caller = request.scope.get(CALLER, ANYONE)
    return found


def request_id_of(request: Request) -> str | None:
    """The name of this request in logs, if it has one."""
    found: str | None = request.scope.get(REQUEST_ID)
    return found
