"""Replies of a runner that nobody timed."""

from collections.abc import Sequence
from typing import Any

from tilewise.search.runner.protocol import FinalsReply, TimedInTurn, TrialReply


def trial_reply(times: Sequence[float], **changes: Any) -> TrialReply:
    """A candidate that was right, and took these seconds."""
    told = {
        "pace": 1.0,
        "takes_over": False,
        "rejected": 0,
        "pruned": False,
        "compile_s": 0.1,
        "measure_s": 0.1,
        "max_error": 0.0,
        "tolerance": 1.0,
    }
    return TrialReply(tuple(times), **(told | changes))


def in_turn(times: Sequence[Sequence[float]], rounds: Sequence[Sequence[int]]) -> TimedInTurn:
    """Seconds and rounds of one contender, by placement."""
    return TimedInTurn(tuple(map(tuple, times)), tuple(map(tuple, rounds)))


def finals_reply(finalists: Sequence[TimedInTurn], **changes: Any) -> FinalsReply:
    """Finalists that took these seconds, and no other libraries."""
    told = {
        "rejected": 0,
        "peers": {},
        "peak_gflops": 100.0,
        "scratch_bytes": ({"A": 64, "B": 640},) * len(finalists),
        "cold": None,
    }
    return FinalsReply(tuple(finalists), **(told | changes))
