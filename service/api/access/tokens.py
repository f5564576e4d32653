"""A short-lived cache of the tokens in the database."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sqlalchemy.orm import Session

from tilewise.service.api.access.caller import ANYONE, Caller
from tilewise.service.api.executors import BoundedExecutor, SharedReads
from tilewise.service.db import checked, tokens
from tilewise.service.db.session import Sessions
from tilewise.service.errors import DatabaseError
from tilewise.service.runs import offers

KNOWN_S, RUNS_KNOWN_S = 1.0, 60.0
MOST_KNOWN = 4096
TOUCHED_S = 60.0

Find = Callable[[Session, str], Caller | None]

log = logging.getLogger(__name__)


@dataclass
class _Known:
    caller: Caller | None
    until_s: float


class TokenBook:
    """Look up tokens of the database; a revoked one is noticed within `known_s` seconds.

    `find` reads a token, in executor `reads`. With `writes`, the use of a token is recorded.
    """

    def __init__(
        self,
        sessions: Sessions,
        find: Find,
        reads: BoundedExecutor,
        writes: BoundedExecutor | None = None,
        known_s: float = KNOWN_S,
    ) -> None:
        self._sessions, self._find, self._known_s = sessions, find, known_s
        self._reads, self._writes = reads, writes
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._touched: dict[int, float] = {}
        self._shared = SharedReads()

    async def caller(self, token: str) -> Caller | None:
        """Return the caller that a token belongs to; None if it is invalid."""
        now_s = time.monotonic()
        known = self._known.get(token)
        if known is None or known.until_s < now_s:
            reading = partial(self._reads.run, partial(self._read, token))
            caller = await self._shared.get(token, reading)
            known = _Known(caller, now_s + (KNOWN_S if caller is None else self._known_s))
            self._known[token] = known
            self._known.move_to_end(token)
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        if self._writes and known.caller is not None and known.caller.token_id is not None:
            await self._note(self._writes, known.caller.token_id, now_s)
        return known.caller

    def is_known(self, token: str) -> bool:
        """Return whether the token is cached."""
        known = self._known.get(token)
        return known is not None and known.until_s >= time.monotonic()

    def forget(self) -> None:
        """Clear the cache of tokens."""
        self._known.clear()

    def _read(self, token: str) -> Caller | None:
        with checked.reading(self._sessions) as session:
            return self._find(session, token)

    async def _note(self, writes: BoundedExecutor, token_id: int, now_s: float) -> None:
        if now_s - self._touched.get(token_id, -TOUCHED_S) < TOUCHED_S:
            return
        self._touched[token_id] = now_s
        try:
            await writes.run(partial(self._touch, token_id))
        except DatabaseError as error:  # a request needs no note of itself
            log.debug("token %d: its use is not noted: %s", token_id, error)

    def _touch(self, token_id: int) -> None:
        with checked.writing(self._sessions) as session:
            tokens.touch(session, token_id)


def of_client(session: Session, token: str) -> Caller | None:
    """Return the caller with a client's token."""
    row = tokens.find(session, token)
    return None if row is None else Caller(row.id, row.scope)


def of_run(session: Session, token: str) -> Caller | None:
    """Return the caller with an offer's token; the routes check what it allows."""
    return ANYONE if offers.is_known(session, token) else None
