"""Compiling candidates before their turn, in processes beside the one that times.

What they make reaches the timing process through the cache folder: micro-kernels as
object code, drivers as Numba keeps them. A candidate that hangs or crashes a compiler
takes that compiler along, and fails alone.
"""

from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from search.process import ChildProcess
from search.protocol import Message

MOST_COMPILERS = 2
READY_AHEAD = 4  # candidates that are asked of the sampler before the present one is told
GIVE_WAY = 10

Steps = list[Any]


def compilers_beside(others: set[int]) -> int:
    """How many compilers run on processors that nothing is timed on."""
    return min(MOST_COMPILERS, len(others))


@dataclass
class Compilers:
    """Child processes that compile schedules of one problem, in the order they are asked to.

    Attributes:
        children: one for each thread of the pool.
        limit_s: seconds for one schedule.
    """

    children: list[ChildProcess]
    limit_s: float
    _closed: bool = field(default=False, init=False)
    _idle: "SimpleQueue[ChildProcess]" = field(default_factory=SimpleQueue, init=False)
    _waiting: dict[str, "Future[Message]"] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        # Linux ends a child with the thread that started it; these live until `close`.
        self._pool = ThreadPoolExecutor(len(self.children), "compiler")
        for child in self.children:
            child.niceness = GIVE_WAY
            self._idle.put(child)

    def move(self, processors: set[int]) -> None:
        """Compile elsewhere."""
        for child in self.children:
            child.move(processors)

    def prepare(self, steps: Steps) -> None:
        """Compile a schedule when its turn comes."""
        self._waiting[str(steps)] = self._pool.submit(self._compile, steps)

    def finish(self, steps: Steps) -> float | None:
        """Seconds that the compilation of a prepared schedule took; None for any other.

        Raises:
            CandidateFailureError: it cannot be compiled, or took the compiler down.
            RunnerError: no compiler could be started.
        """
        prepared = self._waiting.pop(str(steps), None)
        if prepared is None:
            return None
        seconds: float = prepared.result()["compile_s"]
        return seconds

    def close(self) -> None:
        """End the compilers, whatever they are at."""
        self._closed = True
        for future in self._waiting.values():
            future.cancel()
        for child in self.children:
            child.close()
        self._pool.shutdown(wait=True)

    def _compile(self, steps: Steps) -> Message:
        child = self._idle.get()
        try:
            if self._closed:
                raise CancelledError
            return child.ask({"do": "compile", "steps": steps}, self.limit_s)
        finally:
            self._idle.put(child)
