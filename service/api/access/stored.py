"""Tokens from the database, in the lanes of requests."""

import logging
from functools import partial

from service.api.access.caller import Caller
from service.api.access.tokens import TokenBook
from service.api.lanes import Lane
from service.db import checked, tokens
from service.db.session import Sessions
from service.errors import DatabaseError

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


def _find(sessions: Sessions, token: str) -> Caller | None:
    with checked.reading(sessions) as session:
        row = tokens.find(session, token)
        return None if row is None else Caller(row.id, row.scope)


def _touch(sessions: Sessions, token_id: int) -> None:
    with checked.writing(sessions) as session:
        tokens.touch(session, token_id)
