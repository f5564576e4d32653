"""The child process of a runner: compile, check and time candidates on request."""

from collections.abc import Callable

from tilewise.search.runner.child.compiler import answer_all
from tilewise.search.runner.child.session import Session
from tilewise.search.runner.child.trial import trial
from tilewise.search.runner.protocol import Message, Ready, Reply, failure_of


def answer(session: Session | None, request: Message) -> tuple[Session | None, Reply]:
    """Answer one request; a candidate's failure becomes a reply."""
    try:
        what = request["do"]
        given = {name: value for name, value in request.items() if name != "do"}
        if what == "setup":
            return Session(**given), Ready()
        assert session is not None, "setup comes first"
        return session, _answering(what)(session, **given)
    except Exception as error:
        # The boundary between a candidate and the search: whatever it raises is its own.
        return session, failure_of(error)


def _answering(what: str) -> Callable[..., Reply]:
    """Return the function of a request; a first trial does not load what others need."""
    match what:
        case "trial":
            return trial
        case "compile":
            return Session.compile
        case "finals":
            from tilewise.search.runner.child.interleaved import finals

            return finals
        case "peer" | "beside":
            from tilewise.search.runner.child.interleaved import beside, peer

            return peer if what == "peer" else beside
    raise ValueError(f"a runner's child is not asked for {what!r}")


def main() -> None:
    """Answer requests until the input ends."""
    answer_all(answer)


if __name__ == "__main__":
    main()
