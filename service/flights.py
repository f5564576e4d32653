"""Flights: what takes seconds to make is made once, for all who ask for it meanwhile.

The name is that of Go's `golang.org/x/sync/singleflight`. A request waits for a while; where
the making takes longer, it is told to come again, and finds what has landed since.
"""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

from service.errors import BusyError, UnfinishedError
from service.lanes import Lane

Result = TypeVar("Result")

PATIENCE_S = 10.0
KEPT_S = 60.0
MOST_FLIGHTS = 256


class Flights:
    """Makes things by key, each once at a time; used on one event loop.

    Args:
        name: of what is made, for messages: `kernels`.
        threads: how many are made at once; the others wait their turn.
        patience_s: for which a request waits.
        kept_s: for which the outcome of a flight, good or bad, is kept for those who come again.
        most: flights under way or waiting; a new one beyond is refused.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        patience_s: float = PATIENCE_S,
        kept_s: float = KEPT_S,
        most: int = MOST_FLIGHTS,
    ) -> None:
        self._name = name
        self._lane = Lane(name, threads, patience_s=None, may_abandon=True)
        self._patience_s = patience_s
        self._kept_s = kept_s
        self._most = most
        self._flights: dict[Hashable, asyncio.Task[Any]] = {}

    async def make(self, key: Hashable, work: Callable[[], Result]) -> Result:
        """What `work` makes, or what another call for the same key makes or has just made.

        Raises:
            UnfinishedError: it takes longer than a request waits.
            BusyError: too many others are being made.
        """
        flight = self._flights.get(key) or self._start(key, work)
        await asyncio.wait((flight,), timeout=self._patience_s)
        if not flight.done():
            raise UnfinishedError(f"this is one of the {self._name} that are being made; ask again")
        made: Result = flight.result()
        return made

    async def close(self) -> None:
        """End the flights; what runs is left to itself, and ends with the process."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    def _start(self, key: Hashable, work: Callable[[], Any]) -> asyncio.Task[Any]:
        if sum(not flight.done() for flight in self._flights.values()) >= self._most:
            raise BusyError(f"{self._most} {self._name} are being made; try again")
        flight = asyncio.create_task(self._lane.run(work))
        self._flights[key] = flight
        flight.add_done_callback(partial(self._landed, key))
        return flight

    def _landed(self, key: Hashable, flight: asyncio.Task[Any]) -> None:
        if not flight.cancelled():
            flight.exception()  # seen, even where everybody has gone
        asyncio.get_running_loop().call_later(self._kept_s, self._flights.pop, key, None)
