"""A killable child process that proves something: started, watched, and its reply read."""

import json
import signal
import subprocess
import tempfile
import time
from typing import IO, Any

from kernels.errors import LimitError
from kernels.mlir.proof.found import Found
from kernels.system.children import (
    ONE_THREAD,
    child_command,
    child_environment,
    end_group,
    has_ended,
    resident_bytes,
    signal_name,
)
from kernels.system.patience import Patience
from kernels.system.typed_json import from_json

STAGE = "stage: "
MOST_SECONDS = 7 * 24 * 3600.0
MOST_PRINTED = 64 << 20  # bytes of what a child prints, and of its reply
POLL_SECONDS = 0.02
TAIL = 2000
OUT_OF_MEMORY = ("bad_alloc", "out of memory", "MemoryError", "Cannot allocate memory")


def run_child(request: dict[str, Any], module: str = "kernels.mlir.proof.child.prove") -> Found:
    """Send `request` to a fresh child that runs `module`; its reply, or what became of it.

    Raises:
        LimitError: the request's `seconds` or `memory_bytes` cannot be a limit.
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
    """Refuse limits that no child can be held to.

    Raises:
        LimitError: names the limit, its value and what it can be.
    """
    if not 0 < seconds <= MOST_SECONDS:  # a NaN is neither
        raise LimitError(f"seconds={seconds:g}: give more than 0, and at most {MOST_SECONDS:g}")
    if memory_bytes <= 0:
        raise LimitError(f"memory_bytes={memory_bytes}: give more than 0")


def _wait(child: subprocess.Popen[bytes], seconds: float, memory_bytes: int) -> str | None:
    """Wait until the child has ended; `timeout` or `memory` when it went beyond a limit."""
    patience = Patience(seconds)
    while not has_ended(child):
        if patience.is_over(child.pid):
            return "timeout"
        if resident_bytes(child.pid) > memory_bytes:
            return "memory"
        time.sleep(POLL_SECONDS)
    return None


def _outcome(code: int, stopped: str | None, reply: IO[str], errors: IO[str]) -> Found:
    reply.seek(0)
    errors.seek(0)
    said = errors.read()
    stages = [line.removeprefix(STAGE) for line in said.splitlines() if line.startswith(STAGE)]
    where = stages[-1] if stages else "start"
    if stopped:
        what = "the time limit" if stopped == "timeout" else "the memory limit"
        return Found(failure=stopped, message=f"killed at {what} in stage {where}")
    if code == 0:
        return _read(reply, where)
    tail = "\n".join(line for line in said.splitlines() if not line.startswith(STAGE))[-TAIL:]
    if code == -signal.SIGXFSZ:
        message = f"killed in stage {where}: more than {MOST_PRINTED >> 20} MiB were printed"
        return Found(failure="output", message=message)
    if any(sign in tail for sign in OUT_OF_MEMORY):
        return Found(failure="memory", message=f"out of memory in stage {where}\n{tail}")
    if code == -signal.SIGXCPU:
        return Found(failure="timeout", message=f"killed at the time limit in stage {where}")
    how = signal_name(-code) if code < 0 else f"exit code {code}"
    return Found(failure="crash", message=f"the child ended with {how} in stage {where}\n{tail}")


def _read(reply: IO[str], where: str) -> Found:
    """The reply of a child that ended well; native code can end it before it has written one."""
    try:
        return from_json(Found, json.load(reply))
    except ValueError:
        return Found(failure="crash", message=f"the child ended in stage {where} without a reply")
