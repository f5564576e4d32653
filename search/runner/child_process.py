"""A child process that answers requests, with limits of time and memory.

A child that hangs, crashes or takes too much memory fails its request; the next gets a new child.
"""

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from tilewise.kernels.system.children import (
    Patience,
    child_command,
    child_environment,
    end_group,
    has_ended,
    resident_bytes,
    signal_name,
)
from tilewise.kernels.system.typed_json import from_json
from tilewise.search.errors import RunnerError
from tilewise.search.records import FailureClass
from tilewise.search.runner.protocol import (
    CandidateFailureError,
    Failed,
    Message,
    Ready,
    read_message,
    write_message,
)

Answer = TypeVar("Answer")
Process = subprocess.Popen[bytes]

WATCH_S = 0.05
LAST_WORDS_S = 5.0
BY_OTHERS = (signal.SIGKILL, signal.SIGTERM)  # which a candidate does not end by itself


@dataclass
class ChildProcess:
    """One child at a time, for use from one thread, whose end would end the child.

    Attributes:
        module: what the child runs.
        setup: the first request to each child, which may take `setup_s`.
        environment: variables in addition to this process's own.
        processors: where the child may run; None leaves that to the system.
        start_s: seconds of the last start and setup.
    """

    module: str
    setup: Message
    setup_s: float
    memory_bytes: int
    environment: dict[str, str]
    processors: set[int] | None = None
    niceness: int = 0
    start_s: float = field(default=0.0, init=False)
    _process: Process | None = field(default=None, init=False, repr=False)

    @property
    def pid(self) -> int | None:
        """The present child's, if there is one."""
        return None if self._process is None else self._process.pid

    def ask(self, request: Message, limit_s: float, kind: type[Answer]) -> Answer:
        """Send a request to the child, started if need be, and return its answer.

        The limit counts time in which both processes run, so that suspension is no hang. Raises
        CandidateFailureError if the child reports a failure, dies, hangs or takes too much memory,
        RunnerError if it cannot be started or its answer is malformed.
        """
        self.start()
        return self._exchange(request, limit_s, kind)

    def start(self) -> None:
        """Start and set up a child unless there is one; raise RunnerError on failure."""
        process = self._process
        if process is not None and not has_ended(process):
            return
        self.close()
        begin = time.monotonic()
        try:
            self._process = subprocess.Popen(
                child_command(self.module),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=child_environment(**self.environment),
                start_new_session=True,
            )
        except OSError as error:
            raise RunnerError(f"the runner's child cannot be started: {error}") from error
        self._place()
        try:
            self._exchange(self.setup, self.setup_s, Ready)
        except CandidateFailureError as failure:
            self.close()
            raise RunnerError(f"the runner's child cannot be set up: {failure}") from failure
        self.start_s = time.monotonic() - begin

    def move(self, processors: set[int]) -> None:
        """Move this child and later ones to other processors."""
        self.processors = processors
        self._place()

    def _place(self) -> None:
        process = self._process  # another thread may close the child meanwhile
        if process is None:
            return
        try:
            if self.processors is not None and hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(process.pid, self.processors)
            if self.niceness:
                os.setpriority(os.PRIO_PROCESS, process.pid, self.niceness)
        except OSError:
            return  # it has ended already, which the next exchange will tell

    def _exchange(self, request: Message, limit_s: float, kind: type[Answer]) -> Answer:
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            write_message(process.stdin, request)
            reply = read_message(self._wait_for_line(process, limit_s))
        except BrokenPipeError:
            raise self._died(process) from None
        try:
            if "failure" not in reply:
                return from_json(kind, reply)
            failed = from_json(Failed, reply)
        except ValueError as error:
            raise RunnerError(f"the runner's child answers something else: {error}") from error
        raise CandidateFailureError(failed.failure, failed.message, failed.index)

    def _wait_for_line(self, process: Process, limit_s: float) -> bytes:
        """Return one line of output while watching time and memory."""
        assert process.stdout is not None
        patience = Patience(limit_s)
        received = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not received.endswith(b"\n"):
                self._watch(process, patience)
                if selector.select(WATCH_S):
                    chunk = os.read(process.stdout.fileno(), 1 << 16)
                    if not chunk:
                        raise self._died(process)
                    received += chunk
        return received

    def _watch(self, process: Process, patience: Patience) -> None:
        if patience.is_over(process.pid):
            self.close()
            raise CandidateFailureError("timeout", f"no answer within {patience.seconds:.0f} s")
        used, limit = resident_bytes(process.pid), self.memory_bytes
        if used > limit:
            self.close()
            raise CandidateFailureError(
                "memory", f"{used >> 20} MiB resident, limit {limit >> 20} MiB"
            )

    def _died(self, process: Process) -> CandidateFailureError:
        end = time.monotonic() + LAST_WORDS_S
        while process.returncode is None and not has_ended(process) and time.monotonic() < end:
            time.sleep(WATCH_S)  # it has closed its output, and has its exit code yet to say
        self.close()
        code = process.wait()
        how = signal_name(-code) if code < 0 else f"exit code {code}"
        kind: FailureClass = "runtime" if -code in BY_OTHERS else "crash"
        return CandidateFailureError(kind, f"the process ended with {how}")

    def close(self) -> None:
        """End the child, if there is one; another thread may do so at the same time."""
        process, self._process = self._process, None
        if process is None:
            return
        end_group(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
