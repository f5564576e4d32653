"""Time schedules and peers in turn, for the final benchmark and `tilewise bench`."""

import time
from collections.abc import Callable
from functools import partial
from itertools import compress
from statistics import median
from typing import Any

from tilewise.kernels.oracle.operands import Operands
from tilewise.kernels.oracle.reference import Expected
from tilewise.kernels.schedule import Schedule
from tilewise.search.peers import available_peers
from tilewise.search.peers.iree import Maker as LibraryMaker
from tilewise.search.peers.iree import modes
from tilewise.search.peers.screen import MAKERS, screened
from tilewise.search.peers.variant import Bench, PeerAbsentError, Variant, right_ways
from tilewise.search.records import OWN
from tilewise.search.runner.child.lowered import Lowered, lowered
from tilewise.search.runner.child.session import Session
from tilewise.search.runner.protocol import (
    CandidateFailureError,
    FinalistsReply,
    PeerReply,
    RoundsReply,
    TimedInTurn,
    TimedWay,
)
from tilewise.search.timing.cold import evicting_s, in_turn
from tilewise.search.timing.measure import interleave
from tilewise.search.timing.samples import Run, Samples, sample_cost


def on_every_place(
    session: Session, ways: list[Variant], made: Callable[[Operands], list[Variant]]
) -> list[Run]:
    """Return the peers' runs over every copy of the operands that the cold mode has."""
    if len(session.places) == 1:
        return [way.run for way in ways]
    others = [
        {(way.peer, way.name): way for way in made(place.operands)} for place in session.places[1:]
    ]
    return [
        in_turn([way.run, *(other[way.peer, way.name].run for other in others)]) for way in ways
    ]


def time_finalists(
    session: Session,
    schedules: list[Any],
    rounds: int,
    with_peers: bool,
    placements: int = 1,
    budget_s: float | None = None,
) -> FinalistsReply:
    """Time the finalists, and peers, in interleaved rounds on several buffer placements.

    The first placement is that of the trials. The fastest way represents each peer.
    """
    begin = time.monotonic()
    scratch = _checked(session, schedules)
    executables = [lowered(session.problem, steps, session.target) for steps in schedules]
    peers = []
    if with_peers:
        ways = _peers_on(session, session.operands)
        peers = right_ways(ways, _bench(session, session.expected))
    cold = session.how_cold(session.call(schedules[0])) if session.cache == "cold" else None
    ours: list[list[Samples]] = [[] for _ in schedules]
    theirs: list[list[Samples]] = [[] for _ in peers]
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
    return FinalistsReply(
        finalists=tuple(map(_timed, ours)),
        rejected=rejected,
        peers=_best_ways(peers, theirs),
        peak_gflops=peak,
        scratch_bytes=tuple(scratch),
        cold=None if cold is None else cold.description,
        accuracy=tuple(session.accuracy(steps) for steps in schedules),
    )


def _checked(session: Session, schedules: list[Any]) -> list[dict[str, int]]:
    """Return the scratch of each schedule after checking it; an error names its index."""
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
    """Return the finalists' runs on a placement, on every copy of the cold mode."""
    places = session.places
    if placement:
        places = [session.new_place() for _ in places]
    return [
        in_turn([session.bind(executable, place) for place in places]) for executable in executables
    ]


def _peers_on(session: Session, operands: Operands) -> list[Variant]:
    """Return the peers' ways on operands; IREE's own modes for its target."""
    threads = session.target.threads
    if session.target.kind == "iree":
        return modes(session.problem, operands, threads)
    return available_peers(session.problem, operands, threads)


def _bench(session: Session, expected: Expected) -> Bench:
    return Bench(
        session.problem, session.operands, expected, session.initial, session.target.threads
    )


def _timed(placements: list[Samples]) -> TimedInTurn:
    return TimedInTurn(
        tuple(tuple(samples.times) for samples in placements),
        tuple(tuple(samples.rounds) for samples in placements),
    )


def _best_ways(ways: list[Variant], timed: list[list[Samples]]) -> dict[str, TimedInTurn]:
    """Return the samples of each peer's fastest way."""
    best: dict[str, tuple[float, TimedInTurn]] = {}
    for way, placements in zip(ways, timed, strict=True):
        seconds = median(t for samples in placements for t in samples.times)
        if way.peer not in best or seconds < best[way.peer][0]:
            best[way.peer] = seconds, _timed(placements)
    return {name: taken for name, (_, taken) in best.items()}


LEAST_ROUNDS, MOST_ROUNDS = 7, 25
SLOW_S, SLOW_BY = 1.0, 10  # of a run of a peer, and times ours: one sample of it is enough


def peer(session: Session, name: str, steps: Any = ()) -> PeerReply:
    """Prepare and check a peer for `time_with_peers`, or return why it is absent.

    A peer that runs our kernel may be as inexact as the schedule's method.
    """
    own = name in OWN
    make = LibraryMaker(Schedule.from_json(steps), session.target).variants if own else MAKERS[name]
    expected = session.expected_of(steps) if own else session.expected
    session.makers[name] = make
    try:
        ways = session.screened[name] = screened(make, _bench(session, expected))
    except PeerAbsentError as error:
        session.screened[name] = []
        return PeerReply(absent=str(error))
    found = tuple((way.error, way.tolerance) for way in ways)
    return PeerReply(tuple(way.variant.name for way in ways), None, found)


def time_with_peers(session: Session, steps: Any, peers: list[str], budget_s: float) -> RoundsReply:
    """Time one schedule and every way of the peers in interleaved rounds.

    A way that takes far longer keeps the time of its check: without bf16 instructions, a product by
    oneDNN takes up to a minute.
    """
    new = [name for name in peers if name not in session.screened]
    reasons = {name: peer(session, name, steps).absent for name in new}
    absent = {name: reason for name, reason in reasons.items() if reason is not None}
    ways = [way for name in peers for way in session.screened[name]]
    call = session.call(steps)
    session.check(call, steps)

    def ours(repeat: int) -> None:
        for _ in range(repeat):  # entered from Python each time, as every peer is
            call(1)

    threads, cold = session.target.threads, session.how_cold(call)
    first = Samples(1, threads)
    first.take(ours)
    taken = [way.seconds for way in ways]
    is_timed = [seconds <= max(SLOW_S, SLOW_BY * first.last_s) for seconds in taken]
    spent = [first.last_s, *compress(taken, is_timed)]
    emptying = evicting_s(session.target) if cold else 0.0
    fitting = int(budget_s / sum(sample_cost(seconds, threads) + emptying for seconds in spent))
    rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, fitting))
    variants = [way.variant for way in compress(ways, is_timed)]
    runs = [ours, *(variant.run for variant in variants)]
    if cold:
        made = partial(_made, session, peers, is_timed)
        runs = [session.on_copies(steps, call), *on_every_place(session, variants, made)]
    # The best peak of before and after bounds the rounds: its median in the same rounds does not
    # (kernels reached 104 to 110% of it).
    peak = session.peak()
    own, *theirs = interleave(runs, rounds, threads, cold)
    peak = max(peak, session.peak())
    in_rounds = iter(theirs)
    times = [
        next(in_rounds).times if once else [s] for once, s in zip(is_timed, taken, strict=True)
    ]
    timed_ways = tuple(
        TimedWay(way.variant.peer, way.variant.name, way.variant.output, tuple(found))
        for way, found in zip(ways, times, strict=True)
    )
    return RoundsReply(tuple(own.times), timed_ways, absent, peak)


def _made(
    session: Session, peers: list[str], is_timed: list[bool], operands: Operands
) -> list[Variant]:
    """Return the ways of present peers on operands, those that are timed in rounds."""
    makers = [session.makers[name] for name in peers if session.screened[name]]
    threads = session.target.threads
    every = (way for make in makers for way in make(session.problem, operands, threads))
    return list(compress(every, is_timed))
