"""The child process of a runner: compile, check and time candidates on request."""

from collections.abc import Callable

from tilewise.search.runner.child.compiler import answer_all
from tilewise.search.runner.child.session import Session
from tilewise.search.runner.child.trial import trial
from tilewise.search.runner.protocol import Reply


def answering(what: str) -> Callable[..., Reply]:
    """Return the function of a request; a first trial does not load what others need."""
    match what:
        case "trial":
            return trial
        case "compile":
            return Session.compile
        case "finalists":
            from tilewise.search.runner.child.interleaved import time_finalists

            return time_finalists
        case "peer" | "with_peers":
            from tilewise.search.runner.child.interleaved import peer, time_with_peers

            return peer if what == "peer" else time_with_peers
    raise ValueError(f"unknown request to a runner's child: {what!r}")


if __name__ == "__main__":
    answer_all(Session, answering)
