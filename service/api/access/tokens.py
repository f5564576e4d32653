"""Which tokens are known, read from the database and kept for a while."""

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewise.service.api.access.caller import ANYONE, Caller
from tilewise.service.api.executors import Lane, SharedReads
from tilewise.service.db import checked, tokens
from tilewise.service.db.session import Sessions
from tilewise.service.errors import DatabaseError
from tilewise.service.runs import offers

KNOWN_S = 1.0
MOST_KNOWN = 4096
TOUCHED_S = 60.0

Find = Callable[[str], Coroutine[Any, Any, Caller | None]]
Touch = Callable[[int], Awaitable[None]]


@dataclass
class _Known:
    caller: Caller | None
    until_s: float


class TokenBook:
    """Look up tokens; a revoked one is noticed within `known_s` seconds.

    `find` reads a token from the database, `touch` notes that it was used.
    """

    def __init__(self, find: Find, touch: Touch, known_s: float = KNOWN_S) -> None:
        self._find, self._touch, self._known_s = find, touch, known_s
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._touched: dict[int, float] = {}
        self._shared = SharedReads()

    async def caller(self, token: str) -> Caller | None:
        """Who shows this token; None where it is worth nothing."""
        now_s = time.monotonic()
        known = self._known.get(token)
        if known is None or known.until_s < now_s:
            caller = await self._shared.get(token, partial(self._find, token))
            known = _Known(caller, now_s + (KNOWN_S if caller is None else self._known_s))
            self._known[token] = known
            self._known.move_to_end(token)
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        if known.caller is not None and known.caller.token_id is not None:
            await self._note(known.caller.token_id, now_s)
        return known.caller

    def is_known(self, token: str) -> bool:
        """Whether nobody has to ask the database for this token."""
        known = self._known.get(token)
        return known is not None and known.until_s >= time.monotonic()

    def forget(self) -> None:
        """Ask the database anew for every token."""
        self._known.clear()

    async def _note(self, token_id: int, now_s: float) -> None:
        if now_s - self._touched.get(token_id, -TOUCHED_S) >= TOUCHED_S:
            self._touched[token_id] = now_s
            await self._touch(token_id)


RUNS_KNOWN_S = 60.0

log = logging.getLogger(__name__)


def token_book(reads: Lane, writes: Lane, sessions: Sessions) -> TokenBook:
    """Return the tokens of the database, read in lane `reads` and noted in lane `writes`."""

    async def find(token: str) -> Caller | None:
        return await reads.run(partial(_find, sessions, token))

    async def touch(token_id: int) -> None:
        try:
            await writes.run(partial(_touch, sessions, token_id))
        except DatabaseError as error:  # a request needs no note of itself
            log.debug("token %d: its use is not noted: %s", token_id, error)

    return TokenBook(find, touch)


def run_token_book(reads: Lane, sessions: Sessions) -> TokenBook:
    """Return the tokens of offers; their routes check what each one allows."""

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
