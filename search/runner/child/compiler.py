"""The child process that compiles candidates ahead without running them.

A child answers each line, failures included, until its input or its parent ends
(`tilewise.kernels.system.start`).
"""

import gc
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.children import private_output
from tilewise.kernels.system.typed_json import to_json
from tilewise.kernels.target import resolve
from tilewise.search.runner.child.lowered import lower_ahead
from tilewise.search.runner.protocol import (
    CompileReply,
    Ready,
    Reply,
    failure_of,
    read_message,
    write_message,
)

State = TypeVar("State")


def answer_all(
    set_up: Callable[..., State], answering: Callable[[str], Callable[..., Reply]]
) -> None:
    """Answer requests until the input ends; a candidate's failure becomes a reply.

    The first, `setup`, makes the state. `answering` returns the function of another one by its
    name; it gets the state and what the request has.
    """
    out = private_output()
    state: State | None = None
    for line in sys.stdin.buffer:
        request = read_message(line)
        reply: Reply = Ready()
        try:
            what = request.pop("do")
            if what == "setup":
                state = set_up(**request)
            else:
                assert state is not None, "setup comes first"
                reply = answering(what)(state, **request)
        except Exception as error:
            # The boundary between a candidate and the search: whatever it raises is its own.
            reply = failure_of(error)
        write_message(out, to_json(reply))


class Compiler:
    """Compiles schedules of one problem into the cache folder."""

    def __init__(self, problem: str, target: str) -> None:
        self.problem = parse_problem(problem)
        self.target = resolve(target)
        gc.freeze()  # what was imported stays, and need not be looked at again

    def compile(self, steps: Any) -> CompileReply:
        """Compile one schedule and measure the time."""
        begin = time.perf_counter()
        lower_ahead(self.problem, steps, self.target)
        return CompileReply(time.perf_counter() - begin)


if __name__ == "__main__":
    answer_all(Compiler, {"compile": Compiler.compile}.__getitem__)
