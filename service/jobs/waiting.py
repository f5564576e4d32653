"""Waiting for the ends of jobs: one question to the database for all requests that wait."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.service.db import models
from tilewise.service.errors import PASSING, DatabaseError

POLL_S = 0.5


def ended_jobs(session: Session, job_ids: Collection[int]) -> set[int]:
    """Those of the jobs that have ended, or are not there."""
    going_on = select(models.Job.id).where(
        models.Job.id.in_(job_ids), models.Job.state.not_in(models.ENDED)
    )
    return set(job_ids) - set(session.scalars(going_on))


class Completions:
    """Notify requests that their jobs have ended; used on one event loop.

    `ask` returns those of some jobs that have ended.
    """

    def __init__(
        self, ask: Callable[[Collection[int]], Awaitable[set[int]]], poll_s: float = POLL_S
    ) -> None:
        self._ask = ask
        self._poll_s = poll_s
        self._ends: dict[int, asyncio.Future[None]] = {}
        self._waiters: Counter[int] = Counter()
        self._poller: asyncio.Task[None] | None = None
        self._is_closing = False

    def close(self) -> None:
        """Let every request go; may be called from a signal handler."""
        self._is_closing = True

    async def wait(self, job_id: int, has_gone: Callable[[], Awaitable[bool]]) -> bool:
        """Wait for the end of a job; False if the client has gone or the service stops.

        Raises DatabaseError if the database fails permanently.
        """
        end = self._ends.setdefault(job_id, asyncio.get_running_loop().create_future())
        self._waiters[job_id] += 1
        try:
            while not end.done():
                if self._is_closing or await has_gone():
                    return False
                if self._poller is None or self._poller.done():
                    self._poller = asyncio.create_task(self._poll())
                await asyncio.wait((end,), timeout=self._poll_s)
            end.result()
            return True
        finally:
            self._waiters[job_id] -= 1
            if not self._waiters[job_id]:
                del self._waiters[job_id], self._ends[job_id]

    async def _poll(self) -> None:
        while self._ends:
            await self._poll_once()
            await asyncio.sleep(self._poll_s)

    async def _poll_once(self) -> None:
        try:
            ended = await self._ask(tuple(self._ends))
        except PASSING:
            return
        except DatabaseError as error:
            for end in self._ends.values():
                if not end.done():
                    end.set_exception(error)
            return
        for job_id in ended & self._ends.keys():
            if not self._ends[job_id].done():
                self._ends[job_id].set_result(None)
