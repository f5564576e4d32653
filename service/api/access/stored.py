"""Tokens from the database, in the lanes of requests."""

import logging
from functools import partial

from tilewise.service.api.access.caller import ANYONE, Caller
from tilewise.service.api.access.tokens import TokenBook
from tilewise.service.api.lanes import Lane
from tilewise.service.db import checked, tokens
from tilewise.service.db.session import Sessions
from tilewise.service.errors import DatabaseError
from tilewise.service.runs import offers

RUNS_KNOWN_S = 60.0

log = logging.getLogger(__name__)


def token_book(reads: Lane, writes: Lane, sessions: Sessions) -> TokenBook:
    """What tokens are worth, as the database has it.

    Args:
        reads: where questions block.
        writes: where notes do.
        sessions: of the database.
    """

    async def find(token: str) -> Caller | None:
        return await reads.run(partial(_find, sessions, token))

    async def touch(token_id: int) -> None:
        try:
            await writes.run(partial(_touch, sessions, token_id))
        except DatabaseError as error:  # a request needs no note of itself
            log.debug("token %d: its use is not noted: %s", token_id, error)

    return TokenBook(find, touch)


def run_token_book(reads: Lane, sessions: Sessions) -> TokenBook:
    """Which tokens belong to offers; their routes ask again what each is worth.

    Args:
        reads: where questions block.
        sessions: of the database.
    """

    async def find(token: str) -> Caller | None:
        return await reads.run(partial(_find_run, sessions, token))

    async def touch(_token_id: int) -> None:
        """Nobody wants to know."""

    return TokenBook(find, touch, RUNS_KNOWN_S)


def _find_run(sessions: Sessions, token: str) -> Caller | None:
    with checked.reading(sessions) as session:
        return ANYONE if offers.is_known(session, token) else None


def _find(sessions: Sessions, token: str) -> Caller | None:
    with checked.reading(sessions) as session:
        row = tokens.find(session, token)
        return None if row is None else Caller(row.id, row.scope)


def _touch(sessions: Sessions, token_id: int) -> None:
    with checked.writing(sessions) as session:
        tokens.touch(session, token_id)
