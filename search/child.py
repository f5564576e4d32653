"""The child process of a runner: compiles, checks and times candidates on request.

It may hang, crash or be killed at any moment without harm to the search. It dies with
its parent: at the end of its input, and at once through the kernel where Linux runs.
"""

import os
import sys
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from kernels.errors import LoweringError, ScheduleError
from kernels.process import die_with_parent
from search.protocol import Message, read_message, write_message
from search.session import FailureError, Session

State = TypeVar("State")


def answer(session: Session | None, request: Message) -> tuple[Session | None, Message]:
    """Do what one request asks; failures of candidates become answers, not exceptions."""
    try:
        what = request["do"]
        given = {name: value for name, value in request.items() if name != "do"}
        if what == "setup":
            return Session(**given), {"ok": True}
        assert session is not None, "setup comes first"
        return session, _ANSWERS[what](session, **given)
    except Exception as error:
        # The boundary between a candidate and the search: whatever it raises is its own.
        return session, failure_of(error)


_ANSWERS: dict[str, Callable[..., Message]] = {
    "compile": lambda session, **given: session.compile(**given),
    "trial": lambda session, **given: session.trial(**given),
    "finals": lambda session, **given: session.finals(**given),
    "peer": lambda session, **given: session.peer(**given),
    "beside": lambda session, **given: session.beside(**given),
}


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
    die_with_parent()
    out = private_output()
    state: State | None = None
    for line in sys.stdin.buffer:
        state, reply = one(state, read_message(line))
        write_message(out, reply)


def main() -> None:
    """Answer requests until the input ends."""
    answer_all(answer)


if __name__ == "__main__":
    main()
