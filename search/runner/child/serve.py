"""How a child process answers: one request a line, one answer each, failures among them.

It ends with its parent: at the end of its input, and at once where Linux runs
(`kernels.system.start`). Nothing here imports what a child computes with.
"""

import os
import sys
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from kernels.errors import LoweringError, ScheduleError
from search.runner.protocol import Message, read_message, write_message

State = TypeVar("State")


class FailureError(Exception):
    """A candidate's failure with its class, and which of several it was."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.index = 0


def failure_of(error: Exception) -> Message:
    """The answer that stands for a candidate's failure, with its class."""
    match error:
        case FailureError():
            return {"failure": error.kind, "message": str(error), "index": error.index}
        case ScheduleError():
            return {"failure": "constraint", "message": str(error)}
        case LoweringError():
            return {"failure": "compile", "message": str(error)}
        case MemoryError():
            return {"failure": "memory", "message": str(error) or "out of memory"}
    return {"failure": "runtime", "message": f"{type(error).__name__}: {error}"}


def private_output() -> BinaryIO:
    """The real stdout for answers alone; whatever else prints goes to stderr."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def answer_all(one: Callable[[State | None, Message], tuple[State | None, Message]]) -> None:
    """Answer requests until the input ends; each answer comes with the state for the next."""
    out = private_output()
    state: State | None = None
    for line in sys.stdin.buffer:
        state, reply = one(state, read_message(line))
        write_message(out, reply)
