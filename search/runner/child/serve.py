"""How a child process answers: one request a line, one answer each, failures among them.

It ends with its parent: at the end of its input, and at once where Linux runs
(`tilewise.kernels.system.start`). Nothing here imports what a child computes with.
"""

import sys
from collections.abc import Callable
from typing import TypeVar

from tilewise.kernels.system.children import private_output
from tilewise.kernels.system.typed_json import to_json
from tilewise.search.runner.protocol import Message, Reply, read_message, write_message

State = TypeVar("State")


def answer_all(one: Callable[[State | None, Message], tuple[State | None, Reply]]) -> None:
    """Answer requests until the input ends; each reply comes with the state for the next."""
    out = private_output()
    state: State | None = None
    for line in sys.stdin.buffer:
        state, reply = one(state, read_message(line))
        write_message(out, to_json(reply))
