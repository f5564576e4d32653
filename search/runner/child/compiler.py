"""The child process that compiles candidates ahead without running them.

A child answers each line, failures included, until its input or its parent ends
(`tilewise.kernels.system.start`).
"""

import gc
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.system.children import private_output
from tilewise.kernels.system.typed_json import to_json
from tilewise.kernels.target import resolve
from tilewise.kernels.target.model import Target
from tilewise.search.runner.child.lowered import lower_ahead
from tilewise.search.runner.protocol import (
    CompileReply,
    Message,
    Ready,
    Reply,
    failure_of,
    read_message,
    write_message,
)

State = TypeVar("State")


def answer_all(one: Callable[[State | None, Message], tuple[State | None, Reply]]) -> None:
    """Answer requests until the input ends; each reply comes with the next state."""
    out = private_output()
    state: State | None = None
    for line in sys.stdin.buffer:
        state, reply = one(state, read_message(line))
        write_message(out, to_json(reply))


class Compiler:
    """Compiles schedules of one problem into the cache folder."""

    def __init__(self, problem: str, target: str) -> None:
        self.problem = parse_problem(problem)
        self.target = resolve(target)
        gc.freeze()  # what was imported stays, and need not be looked at again

    def compile(self, steps: Any) -> CompileReply:
        """Compile one schedule."""
        return compiled(self.problem, steps, self.target)


def compiled(problem: Problem, steps: Any, target: Target) -> CompileReply:
    """Compile a schedule and measure the time."""
    begin = time.perf_counter()
    lower_ahead(problem, steps, target)
    return CompileReply(time.perf_counter() - begin)


def answer(compiler: Compiler | None, request: Message) -> tuple[Compiler | None, Reply]:
    """Answer one request; a candidate's failure becomes a reply."""
    try:
        if request["do"] == "setup":
            return Compiler(request["problem"], request["target"]), Ready()
        assert compiler is not None, "setup comes first"
        return compiler, compiler.compile(request["steps"])
    except Exception as error:
        # The boundary between a candidate and the search: whatever it raises is its own.
        return compiler, failure_of(error)


def main() -> None:
    """Answer requests until the input ends."""
    answer_all(answer)


if __name__ == "__main__":
    main()
