"""The killable child process from the outside: time and memory limits, failure classes.

A candidate can hang, segfault, eat memory or be wrong; each costs one trial. The child
is started again for the next one.
"""

import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any

from kernels.problem import Problem
from kernels.process import ONE_THREAD, child_command, child_environment, resident_bytes
from kernels.support import working_bytes
from kernels.target import parse_target
from search.errors import RunnerError
from search.protocol import Message, read_message, write_message
from search.records import FailureClass

CHILD = "search.child"
WATCH_S = 0.05
SLOWEST_FLOPS = 2e9  # a candidate slower than this is as good as hung
BASE_LIMIT_S = 20.0
SETUP_LIMIT_S = 120.0
BASE_MEMORY = 1 << 30
PEER_LIMIT_S = 240.0  # to load a library, compile for it, and check each of its ways
PARK_EARLY = {
    "OPENBLAS_THREAD_TIMEOUT": "20",  # log2 of cycles of the processor's counter; by itself 28
    "GOMP_SPINCOUNT": "20000",  # by itself 300000
}
"""Idle threads of the peers park within a millisecond, and not while calls follow at once."""


class CandidateFailureError(Exception):
    """A candidate failed.

    Attributes:
        kind: its class.
        index: which of several finalists it was; None where that is not known.
    """

    def __init__(self, kind: FailureClass, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.index = index


@dataclass(frozen=True)
class Limits:
    """Seconds and bytes that one request may take."""

    trial_s: float
    setup_s: float
    memory_bytes: int

    @classmethod
    def for_problem(cls, problem: Problem) -> "Limits":
        """Generous for a sane candidate of `problem`, final for any other."""
        work_s = problem.flops / SLOWEST_FLOPS
        return cls(
            trial_s=BASE_LIMIT_S + 10 * work_s,
            setup_s=SETUP_LIMIT_S + 10 * work_s,
            memory_bytes=BASE_MEMORY + 2 * working_bytes(problem),
        )


def thread_limits(target: str) -> dict[str, str]:
    """The environment that holds libraries to the threads of a canonical target."""
    _, threads = parse_target(target)
    if threads == 1:
        return ONE_THREAD
    return dict.fromkeys(ONE_THREAD, str(threads)) | PARK_EARLY


@dataclass
class Runner:
    """Runs candidates of one problem in a child process; a context manager.

    Attributes:
        problem: what to run.
        target: the target's canonical string.
        seed: of the random operands.
        limits: see `Limits`.
        child: the module that the child process runs; tests name a misbehaving one.
    """

    problem: Problem
    target: str
    seed: int = 0
    limits: Limits | None = None
    child: str = CHILD
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False, repr=False)

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _limits(self) -> Limits:
        return self.limits or Limits.for_problem(self.problem)

    def trial(self, steps: list[Any], best_s: float | None) -> Message:
        """Compile, check and time one schedule.

        Raises:
            CandidateFailureError: the candidate failed, with its class.
            RunnerError: the child cannot be started or set up.
        """
        return self._ask({"do": "trial", "steps": steps, "best_s": best_s}, self._limits.trial_s)

    def finals(self, schedules: list[list[Any]], rounds: int, peers: bool) -> Message:
        """Time finalists (and peers) again in interleaved rounds; errors as for `trial`."""
        request = {"do": "finals", "schedules": schedules, "rounds": rounds, "peers": peers}
        return self._ask(request, self._limits.trial_s * (len(schedules) + 1))

    def peer(self, name: str) -> Message:
        """Prepare and check one peer in the child; `absent` in the reply says why it cannot be.

        Raises:
            CandidateFailureError: the peer took the child down, or hung.
            RunnerError: as for `trial`.
        """
        return self._ask({"do": "peer", "name": name}, PEER_LIMIT_S + self._limits.trial_s)

    def beside(self, steps: list[Any], peers: list[str], budget_s: float) -> Message:
        """Time one schedule and all peers in interleaved rounds; errors as for `trial`.

        A peer that this child has not prepared is prepared first.
        """
        request = {"do": "beside", "steps": steps, "peers": peers, "budget_s": budget_s}
        limit_s = (PEER_LIMIT_S + self._limits.trial_s) * (1 + len(peers))
        return self._ask(request, limit_s)

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._kill()

    def _ask(self, request: Message, limit_s: float) -> Message:
        if self._process is None or self._process.poll() is not None:
            self._start()
        return self._exchange(request, limit_s)

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                child_command(self.child),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=child_environment(**thread_limits(self.target)),
                start_new_session=True,
            )
        except OSError as error:
            raise RunnerError(f"the runner's child cannot be started: {error}") from error
        setup = {
            "do": "setup",
            "problem": self.problem.canonical,
            "target": self.target,
            "seed": self.seed,
        }
        try:
            self._exchange(setup, self._limits.setup_s)
        except CandidateFailureError as failure:
            self.close()
            raise RunnerError(f"the runner's child cannot be set up: {failure}") from failure

    def _exchange(self, request: Message, limit_s: float) -> Message:
        assert self._process is not None and self._process.stdin is not None
        try:
            write_message(self._process.stdin, request)
            reply = read_message(self._wait_for_line(limit_s))
        except BrokenPipeError:
            raise self._died() from None
        if "failure" in reply:
            raise CandidateFailureError(reply["failure"], reply["message"], reply.get("index"))
        return reply

    def _wait_for_line(self, limit_s: float) -> bytes:
        """One line of the child's output, while its time and memory are watched."""
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + limit_s
        received = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not received.endswith(b"\n"):
                if selector.select(WATCH_S):
                    chunk = os.read(self._process.stdout.fileno(), 1 << 16)
                    if not chunk:
                        raise self._died()
                    received += chunk
                else:
                    self._watch(deadline, limit_s)
        return received

    def _watch(self, deadline: float, limit_s: float) -> None:
        assert self._process is not None
        if time.monotonic() > deadline:
            self._kill()
            raise CandidateFailureError("timeout", f"no answer within {limit_s:.0f} s")
        used, limit = resident_bytes(self._process.pid), self._limits.memory_bytes
        if used > limit:
            self._kill()
            raise CandidateFailureError(
                "memory", f"{used >> 20} MiB resident, limit {limit >> 20} MiB"
            )

    def _died(self) -> CandidateFailureError:
        assert self._process is not None
        code = self._process.wait()
        self._kill()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return CandidateFailureError("crash", f"the process ended with {how}")

    def _kill(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
