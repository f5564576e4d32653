"""How a child process answers: one request a line, one answer each, failures among them.

It ends with its parent: at the end of its input, and at once where Linux runs
(`kernels.system.start`). Nothing here imports what a child computes with.
"""

import os
import sys
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from search.runner.protocol import Message, read_message, write_message

State = TypeVar("State")


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
