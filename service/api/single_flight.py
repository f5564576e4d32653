"""Single-flight: compute a slow result once for all concurrent requests.

The name is that of Go's `golang.org/x/sync/singleflight`. A request waits for a while. If the work
takes longer, the request fails with UnfinishedError, and a later one finds the result.
"""

import asyncio
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

from tilewise.service.errors import BusyError, ConflictError, NotFoundError, UnfinishedError

Result = TypeVar("Result")

PATIENCE_S = 10.0
LOOK_S = 0.25
KEPT_S = 60.0
MOST_CALLS = 256
FINAL = (NotFoundError, ConflictError)  # errors that another try would meet again


class SingleFlight:
    """Run slow work once per key; used on one event loop.

    The threads are daemons, so that a process can end at any time. `keeps_results` is for keys that
    determine the result. A request waits `patience_s`; results and `FINAL` errors are kept for
    `KEPT_S`. At most `most` calls and `most_bytes` of input wait or run.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        *,
        keeps_results: bool,
        patience_s: float = PATIENCE_S,
        most: int = MOST_CALLS,
        most_bytes: int = 0,
    ) -> None:
        self._name = name
        self._free = asyncio.Semaphore(threads)
        self._keeps_results = keeps_results
        self._patience_s = patience_s
        self._most, self._most_bytes = most, most_bytes
        self._calls: dict[Hashable, asyncio.Task[Any]] = {}
        self._bytes: dict[asyncio.Task[Any], int] = {}
        self._is_closing = False

    async def make(self, key: Hashable, work: Callable[[], Result], size: int = 0) -> Result:
        """Return what `work` makes, shared with other calls for the same key.

        `size` is the memory in bytes that `work` holds. Raises UnfinishedError if it takes longer
        than a request waits or the service is stopping, BusyError if the limits are reached.
        """
        call = self._calls.get(key) or self._start(key, work, size)
        end = asyncio.get_running_loop().time() + self._patience_s
        while not call.done():
            left = end - asyncio.get_running_loop().time()
            if left <= 0 or self._is_closing:
                raise UnfinishedError(
                    f"this is one of the {self._name} that are being generated; retry later"
                )
            await asyncio.wait((call,), timeout=min(left, LOOK_S))
        made: Result = call.result()
        return made

    def release(self) -> None:
        """Release all waiting requests; may be called from a signal handler."""
        self._is_closing = True

    async def close(self) -> None:
        """Release all waiting requests and start no new work."""
        self.release()
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _start(self, key: Hashable, work: Callable[[], Any], size: int) -> asyncio.Task[Any]:
        if len(self._bytes) >= self._most:
            raise BusyError(
                f"limit reached: {self._most} {self._name} are being generated; retry later"
            )
        if size and size + sum(self._bytes.values()) > self._most_bytes:
            raise BusyError(
                f"limit reached: the {self._name} being generated use all reserved memory; "
                "retry later"
            )
        call = asyncio.create_task(self._run(work))
        self._calls[key] = call
        self._bytes[call] = size
        call.add_done_callback(partial(self._finished, key))
        return call

    async def _run(self, work: Callable[[], Any]) -> Any:
        async with self._free:
            return await in_daemon(work, self._name)

    def _finished(self, key: Hashable, call: asyncio.Task[Any]) -> None:
        self._bytes.pop(call, None)
        error = None if call.cancelled() else call.exception()  # seen, if nobody is there
        is_kept = isinstance(error, FINAL) or (error is None and self._keeps_results)
        loop = asyncio.get_running_loop()
        if is_kept and not call.cancelled():
            loop.call_later(KEPT_S, self._calls.pop, key, None)
        else:
            self._calls.pop(key, None)


async def in_daemon(work: Callable[[], Result], name: str) -> Result:
    """Run `work` in a daemon thread and return its result."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[Result] = loop.create_future()

    def settle(tell: Callable[[], None]) -> None:
        if not made.done():  # else nobody waits any more
            tell()

    def run() -> None:
        try:
            tell = partial(made.set_result, work())
        except BaseException as error:
            tell = partial(made.set_exception, error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, tell)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await made
