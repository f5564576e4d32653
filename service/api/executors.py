"""One executor per kind of work, so that slow work blocks only itself.

What blocks (a lock of another process, a slow query) occupies only the threads of its own executor.
A request that gets no thread in time receives 503 instead of waiting without end.
"""

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from tilewise.service.errors import BusyError, UndoneError

Result = TypeVar("Result")
Given = ParamSpec("Given")

PATIENCE_S = 5.0
MOST_TRIES, FIRST_PAUSE_S = 4, 0.02


class BoundedExecutor:
    """A bounded number of threads; a request waits up to `patience_s` for one."""

    def __init__(self, name: str, threads: int, patience_s: float = PATIENCE_S) -> None:
        self._name = name
        self._threads = threads
        self._patience_s = patience_s
        self._free = asyncio.Semaphore(threads)
        self._limiter = CapacityLimiter(threads)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return what `work` returns, from a thread of this executor.

        A transaction that the server rolled back in favour of another is repeated. Raises BusyError
        if no thread came free in time, or the work was undone too often.
        """
        try:
            async with asyncio.timeout(self._patience_s):
                await self._free.acquire()
        except TimeoutError as error:
            raise BusyError(
                f"limit reached: all {self._threads} {self._name} were busy for "
                f"{self._patience_s:g} s; retry later"
            ) from error
        try:
            return await run_sync(partial(_repeated, work), limiter=self._limiter)
        finally:
            self._free.release()


class SharedReads:
    """Reads by key, each once at a time; used on one event loop.

    A caller during a running read of the same key gets its result, so that a thousand clients of
    one job cost the database one question.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, key: Hashable, read: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return what `read` returns, or what a running read of the same key does."""
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(read())
            self._running[key] = task
            task.add_done_callback(partial(self._end, key))
        found: Result = await asyncio.shield(task)  # one client that leaves cancels no other's
        return found

    def _end(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # retrieved, for the case that every client has left


def _repeated(work: Callable[[], Result]) -> Result:
    """What `work` returns; undone work is repeated some times, each after a longer pause.

    Chance takes up to half of a pause, or what met once would meet again.
    """
    for number in range(MOST_TRIES - 1):
        try:
            return work()
        except UndoneError:
            time.sleep(FIRST_PAUSE_S * 2.0**number * random.uniform(0.5, 1.0))
    return work()


def in_executor(
    kind: Literal["reads", "writes", "probes"],
) -> Callable[[Callable[Given, Result]], Callable[Given, Awaitable[Result]]]:
    """Run a blocking route in an executor of its `services`.

    The framework would run it on threads that all such routes share, with an unbounded queue.
    """

    def decorate(route: Callable[Given, Result]) -> Callable[Given, Awaitable[Result]]:
        async def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            services: Any = kwargs["services"]
            chosen: BoundedExecutor = getattr(services.executors, kind)
            return await chosen.run(partial(route, *args, **kwargs))

        run.__name__, run.__doc__ = route.__name__, route.__doc__
        vars(run)["__signature__"] = inspect.signature(route)
        return run

    return decorate
