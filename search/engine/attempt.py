"""One candidate, tried: what the runner answers, or how it failed, as a trial."""

from collections.abc import Callable

from tilewise.search.helpers import Candidate
from tilewise.search.records import TrialRecord
from tilewise.search.runner.failures import CandidateFailureError
from tilewise.search.runner.protocol import TrialReply
from tilewise.search.timing.summary import summarise


def attempt(ask: Callable[[], TrialReply], candidate: Candidate, flops: int) -> TrialRecord:
    """The trial that comes of asking a runner, whatever comes of it.

    Args:
        ask: asks the runner to compile, check and time the candidate's schedule.
        candidate: what is tried.
        flops: of the problem.
    """
    number, origin = candidate.number, candidate.origin
    schedule, point = candidate.schedule, candidate.params
    try:
        reply = ask()
    except CandidateFailureError as failure:
        return TrialRecord(number, schedule, point, "failed", origin, failure.kind, str(failure))
    return TrialRecord(
        number=number,
        schedule=schedule,
        params=point,
        state="pruned" if reply.pruned else "timed",
        origin=origin,
        measurement=summarise([taken / (reply.pace or 1.0) for taken in reply.times], flops),
        samples=reply.times,
        pace=reply.pace,
        takes_over=reply.takes_over,
        rejected=reply.rejected,
        compile_s=reply.compile_s,
        max_error=reply.max_error,
        message=_told_of(reply.accuracy),
    )


def _told_of(accuracy: dict[str, float]) -> str:
    """The largest of a method's rms errors; nothing of the direct method's own."""
    if not accuracy:
        return ""
    kind = max(accuracy, key=lambda name: accuracy[name])
    return f"rms error {accuracy[kind]:.2f} times the direct method's, on {kind} operands at most"
