"""A child process within limits of time and memory.

The child runs a module that reads one JSON request on standard input and writes one JSON reply on
standard output (`reply_to_request`). It announces its stages on standard error, so that the parent
can say which one hung. It may die at any moment: that is an `Ended` with a failure.
"""

import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any

from tilewise.kernels.errors import LimitError
from tilewise.kernels.system.children import (
    ONE_THREAD,
    Patience,
    child_command,
    child_environment,
    end_group,
    has_ended,
    private_output,
    resident_bytes,
    signal_name,
)

STAGE = "stage: "
MOST_SECONDS = 7 * 24 * 3600.0
MOST_PRINTED = 64 << 20  # bytes of what a child prints, and of its reply
LIBRARIES = 2 << 30  # address space of compilers themselves, most of it never resident
POLL_SECONDS = 0.02
TAIL = 2000
TRACEBACK = "Traceback (most recent call last):"
OUT_OF_MEMORY = ("bad_alloc", "out of memory", "MemoryError", "Cannot allocate memory")


@dataclass(frozen=True)
class Ended:
    """The outcome of a child.

    Attributes:
        reply: None if it failed.
        failure: timeout, memory, output or crash; else empty.
        message: the failure with its stage.
        printed: standard error besides the stages.
    """

    reply: dict[str, Any] | None = None
    failure: str = ""
    message: str = ""
    printed: str = ""


def run_limited(request: dict[str, Any], module: str) -> Ended:
    """Send `request` to a fresh child that runs `module`; return its reply or failure.

    The request has the limits `seconds` and `memory_bytes`; raise LimitError for invalid ones.
    """
    check_limits(request["seconds"], request["memory_bytes"])
    with (
        tempfile.TemporaryFile("w+") as source,
        tempfile.TemporaryFile("w+") as reply,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        json.dump(request, source)
        source.seek(0)
        child = subprocess.Popen(
            child_command(module),
            stdin=source,
            stdout=reply,
            stderr=errors,
            start_new_session=True,
            env=child_environment(**ONE_THREAD),
        )
        try:
            stopped = _wait(child, request["seconds"], request["memory_bytes"])
        finally:
            end_group(child)
        return _outcome(child.returncode, stopped, reply, errors)


def check_limits(seconds: float, memory_bytes: int) -> None:
    """Raise LimitError for invalid limits."""
    if not 0 < seconds <= MOST_SECONDS:  # a NaN is neither
        raise LimitError(f"seconds={seconds:g}: give more than 0, and at most {MOST_SECONDS:g}")
    if memory_bytes <= 0:
        raise LimitError(f"memory_bytes={memory_bytes}: give more than 0")


def _wait(child: subprocess.Popen[bytes], seconds: float, memory_bytes: int) -> str | None:
    """Wait until the child has ended; return `timeout` or `memory` if it exceeds a limit."""
    patience = Patience(seconds)
    while not has_ended(child):
        if patience.is_over(child.pid):
            return "timeout"
        if resident_bytes(child.pid) > memory_bytes:
            return "memory"
        time.sleep(POLL_SECONDS)
    return None


def _outcome(code: int, stopped: str | None, reply: IO[str], errors: IO[str]) -> Ended:
    reply.seek(0)
    errors.seek(0)
    text = errors.read()
    stages = [line.removeprefix(STAGE) for line in text.splitlines() if line.startswith(STAGE)]
    where = stages[-1] if stages else "start"
    if stopped:
        what = "the time limit" if stopped == "timeout" else "the memory limit"
        return Ended(failure=stopped, message=f"killed at {what} in stage {where}")
    lines = [line for line in text.splitlines() if line and not line.startswith(STAGE)]
    if code == 0:
        return replace(_read(reply, where), printed="\n".join(lines))
    tail = "\n".join(lines if TRACEBACK not in lines else lines[-1:])[-TAIL:]
    if code == -signal.SIGXFSZ:
        message = f"killed in stage {where}: more than {MOST_PRINTED >> 20} MiB were printed"
        return Ended(failure="output", message=message)
    if any(sign in tail for sign in OUT_OF_MEMORY):
        return Ended(failure="memory", message=f"out of memory in stage {where}\n{tail}")
    if code == -signal.SIGXCPU:
        return Ended(failure="timeout", message=f"killed at the time limit in stage {where}")
    how = signal_name(-code) if code < 0 else f"exit code {code}"
    return Ended(failure="crash", message=f"the child ended with {how} in stage {where}\n{tail}")


def _read(reply: IO[str], where: str) -> Ended:
    """Return the reply of a child that exited with 0; native code can exit before it is written."""
    try:
        found = json.load(reply)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return Ended(failure="crash", message=f"the child ended in stage {where} without a reply")
    return Ended(found)


def reply_to_request(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read the request and write the reply of `answer` within its limits, in the child."""
    request = json.load(sys.stdin)
    out = private_output()
    limit(request["seconds"], request["memory_bytes"])
    reply = answer(request)
    with out:
        out.write(json.dumps(reply).encode())


@contextmanager
def may_write(size: int) -> Iterator[None]:
    """Let this process write a file of so many bytes, where a child may print fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(soft, size), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def limit(seconds: float, memory_bytes: int) -> None:
    """Set bounds that hold even without the parent: processor time, address space, output."""
    processor = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    space = memory_bytes + LIBRARIES
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_PRINTED, most))  # see `may_write`
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and MLIR would print on
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def stage(name: str) -> float:
    """Announce a stage; return the time at which it began."""
    print(f"\n{STAGE}{name}", file=sys.stderr, flush=True)  # MLIR may end in the midst of a line
    return time.perf_counter()
