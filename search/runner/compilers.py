"""Compiling candidates before their turn, in processes beside the one that times.

What they make reaches the timing process through the cache folder, as object code. A
candidate that hangs or crashes a compiler takes that compiler along, and fails alone.
Where the timing process would wait for a compiler, it takes over a candidate that none has
begun: so nothing is ever compiled on its processor while it times.
"""

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from tilewise.search.runner.child_process import ChildProcess
from tilewise.search.runner.protocol import CandidateFailureError, CompileReply

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
    _waiting: dict[str, "tuple[Steps, Future[CompileReply]]"] = field(
        default_factory=dict, init=False
    )

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
        self._waiting[str(steps)] = steps, self._pool.submit(self._compile, steps)

    def help(self, steps: Steps, compile_here: Callable[[Steps], CompileReply]) -> None:
        """Until a prepared schedule is ready, compile elsewhere what no compiler has begun.

        What would wait for it has nothing better to do, and the next ones are ready sooner.
        """
        wanted = self._waiting.get(str(steps))
        for key, (waiting, future) in list(self._waiting.items()):
            if wanted is None or wanted[1].done():
                return
            if future.cancel():
                self._waiting[key] = (waiting, _outcome(compile_here, waiting))

    def finish(self, steps: Steps) -> float | None:
        """Seconds that the compilation of a prepared schedule took; None for any other.

        Raises:
            CandidateFailureError: it cannot be compiled, or took the compiler down.
            RunnerError: no compiler could be started.
        """
        prepared = self._waiting.pop(str(steps), None)
        if prepared is None:
            return None
        return prepared[1].result().compile_s

    def close(self) -> None:
        """End the compilers, whatever they are at."""
        self._closed = True
        for _, future in self._waiting.values():
            future.cancel()
        for child in self.children:
            child.close()
        self._pool.shutdown(wait=True)

    def _compile(self, steps: Steps) -> CompileReply:
        child = self._idle.get()
        try:
            if self._closed:
                raise CancelledError
            return child.ask({"do": "compile", "steps": steps}, self.limit_s, CompileReply)
        finally:
            self._idle.put(child)


def _outcome(compile_here: Callable[[Steps], CompileReply], steps: Steps) -> "Future[CompileReply]":
    """What came of compiling elsewhere, to be told when the schedule's turn comes."""
    done: Future[CompileReply] = Future()
    try:
        done.set_result(compile_here(steps))
    except CandidateFailureError as failure:
        done.set_exception(failure)
    return done
