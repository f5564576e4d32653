"""Compile candidates ahead, in other processes than the timing process.

Object code reaches the timing process through the cache folder. A candidate that hangs or crashes a
compiler fails alone. While the timing process waits, it compiles what no compiler has begun.
"""

from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from tilewise.search.runner.child_process import ChildProcess
from tilewise.search.runner.protocol import CandidateFailureError, CompileReply

MOST_COMPILERS = 2
READY_AHEAD = 4  # candidates proposed by the sampler before the present one is reported
GIVE_WAY = 10

Steps = list[Any]


@dataclass
class Compilers:
    """Child processes that compile schedules of one problem in order."""

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
        """Move all compilers."""
        for child in self.children:
            child.move(processors)

    def prepare(self, steps: Steps) -> None:
        """Queue a schedule."""
        self._waiting[str(steps)] = steps, self._pool.submit(self._compile, steps)

    def help(self, steps: Steps, child: ChildProcess) -> None:
        """Compile queued schedules in another child until the wanted one is ready."""
        wanted = self._waiting.get(str(steps))
        for key, (waiting, future) in list(self._waiting.items()):
            if wanted is None or wanted[1].done():
                return
            if future.cancel():
                outcome: Future[CompileReply] = Future()
                try:
                    outcome.set_result(self._compile_in(child, waiting))
                except CandidateFailureError as failure:
                    outcome.set_exception(failure)
                self._waiting[key] = waiting, outcome

    def finish(self, steps: Steps) -> float | None:
        """Return the compile time of a prepared schedule in seconds; None for any other.

        Raises CandidateFailureError if it cannot be compiled, RunnerError if no compiler starts.
        """
        prepared = self._waiting.pop(str(steps), None)
        return prepared and prepared[1].result().compile_s

    def close(self) -> None:
        """End the compilers."""
        self._closed = True
        for _, future in self._waiting.values():
            future.cancel()
        for child in self.children:
            child.close()
        self._pool.shutdown(wait=True)

    def _compile(self, steps: Steps) -> CompileReply:
        child = self._idle.get()
        try:
            if not self._closed:
                child.start()
            if self._closed:
                raise CancelledError
            return self._compile_in(child, steps)
        finally:
            if self._closed:  # maybe while the child started
                child.close()
            self._idle.put(child)

    def _compile_in(self, child: ChildProcess, steps: Steps) -> CompileReply:
        return child.ask({"do": "compile", "steps": steps}, self.limit_s, CompileReply)
