"""The finals in a runner's child: finalists and peers timed in turn, on several placements."""

import time
from functools import partial
from statistics import median
from typing import Any

from tilewise.kernels.oracle.operands import Operands
from tilewise.search.peers import available_peers
from tilewise.search.peers.iree_modes import modes
from tilewise.search.peers.variant import Variant, why_wrong
from tilewise.search.runner.child.lowered import Lowered, lowered
from tilewise.search.runner.child.places import on_every_place
from tilewise.search.runner.child.session import Session
from tilewise.search.runner.failures import CandidateFailureError
from tilewise.search.runner.protocol import FinalsReply, TimedInTurn
from tilewise.search.timing.cold import in_turn
from tilewise.search.timing.interleave import interleave
from tilewise.search.timing.samples import Run, Samples


def finals(
    session: Session,
    schedules: list[Any],
    rounds: int,
    with_peers: bool,
    placements: int = 1,
    budget_s: float | None = None,
) -> FinalsReply:
    """Time the finalists again, and the peers with them, in interleaved rounds.

    The rounds are spread over several placements of the buffers, the first of which is that of
    the trials. Of the peers' ways the fastest stands for each.
    """
    begin = time.monotonic()
    scratch = _checked(session, schedules)
    executables = [lowered(session.problem, steps, session.target) for steps in schedules]
    peers = _right_peers(session) if with_peers else []
    cold = session.how_cold(session.call(schedules[0])) if session.cache == "cold" else None
    ours, theirs = _nothing_yet(len(schedules)), _nothing_yet(len(peers))
    before = time.monotonic()
    rejected, peak = 0, session.peak()
    peak_s = time.monotonic() - before  # which it takes after each placement again
    for placement in range(placements):
        until = None
        if budget_s is not None:
            until = begin + budget_s * (placement + 1) / placements - peak_s
            if placement and time.monotonic() > until:
                break
        contenders = [
            *_placed(session, executables, placement),
            *on_every_place(session, peers, partial(_peers_on, session)),
        ]
        timed = interleave(contenders, rounds, session.target.threads, cold, until)
        for one, samples in zip([*ours, *theirs], timed, strict=True):
            one.append(samples)
        rejected += sum(samples.preempted for samples in timed[: len(ours)])
        contenders.clear()  # their buffers go before those of the next placement come
        peak = max(peak, session.peak())
    return FinalsReply(
        finalists=tuple(map(_timed, ours)),
        rejected=rejected,
        peers=_best_ways(peers, theirs),
        peak_gflops=peak,
        scratch_bytes=tuple(scratch),
        cold=None if cold is None else cold.description,
        accuracy=tuple(session.accuracy(steps) for steps in schedules),
    )


def _checked(session: Session, schedules: list[Any]) -> list[dict[str, int]]:
    """The scratch of each schedule, once it was right; the error of one that is not names it."""
    scratch = []
    for index, steps in enumerate(schedules):
        call = session.call(steps)
        try:
            session.check(call, steps)
        except CandidateFailureError as failure:
            raise CandidateFailureError(failure.kind, str(failure), index) from failure
        scratch.append(call.scratch_bytes)
    return scratch


def _placed(session: Session, executables: list[Lowered], placement: int) -> list[Run]:
    """The finalists on buffers of a placement, on every copy that the cold mode wants."""
    places = session.places
    if placement:
        places = [session.new_place() for _ in places]
    return [
        in_turn([session.bind(executable, place) for place in places]) for executable in executables
    ]


def _peers_on(session: Session, operands: Operands) -> list[Variant]:
    """The peers' ways on these operands; of a spec they are IREE's own modes."""
    threads = session.target.threads
    if session.target.kind == "iree":
        return modes(session.problem, operands, threads)
    return available_peers(session.problem, operands, threads)


def _right_peers(session: Session) -> list[Variant]:
    """The peers' ways whose results are right."""
    given = (session.problem, session.operands, session.expected, session.initial)
    ways = _peers_on(session, session.operands)
    return [way for way in ways if why_wrong(way, *given) is None]


def _nothing_yet(count: int) -> list[list[Samples]]:
    """For each contender, its samples on each placement."""
    return [[] for _ in range(count)]


def _timed(placements: list[Samples]) -> TimedInTurn:
    return TimedInTurn(
        tuple(tuple(samples.times) for samples in placements),
        tuple(tuple(samples.rounds) for samples in placements),
    )


def _best_ways(ways: list[Variant], timed: list[list[Samples]]) -> dict[str, TimedInTurn]:
    """For each peer the samples of its fastest way."""
    best: dict[str, tuple[float, TimedInTurn]] = {}
    for way, placements in zip(ways, timed, strict=True):
        seconds = median(t for samples in placements for t in samples.times)
        if way.peer not in best or seconds < best[way.peer][0]:
            best[way.peer] = seconds, _timed(placements)
    return {name: taken for name, (_, taken) in best.items()}
