"""A benchmark in a runner's child: one schedule and every way of the peers, timed in turn."""

from functools import partial
from typing import Any

from tilewise.kernels.oracle.operands import Operands
from tilewise.kernels.schedule import Schedule
from tilewise.search.peers.iree_library import Maker as LibraryMaker
from tilewise.search.peers.screen import MAKERS, Bench, Maker, screened
from tilewise.search.peers.variant import PeerAbsentError, Variant
from tilewise.search.records import OWN
from tilewise.search.runner.child.places import on_every_place
from tilewise.search.runner.child.session import Session
from tilewise.search.runner.protocol import BesideReply, PeerReply, TimedWay
from tilewise.search.timing.cold import ColdMode, evicting_s
from tilewise.search.timing.interleave import interleave
from tilewise.search.timing.samples import Run, Samples, sample_cost

LEAST_ROUNDS, MOST_ROUNDS = 7, 25


def peer(session: Session, name: str, steps: Any = ()) -> PeerReply:
    """Prepare and check a peer for `beside`; why it is absent, if it is.

    One that runs our own kernel is as exact as the schedule's method is.
    """
    own = name in OWN
    session.makers[name] = _maker(session, steps) if own else MAKERS[name]
    bench = Bench(
        problem=session.problem,
        operands=session.operands,
        expected=session.expected_of(steps) if own else session.expected,
        initial=session.initial,
        threads=session.target.threads,
    )
    try:
        session.screened[name] = screened(session.makers[name], bench)
    except PeerAbsentError as error:
        session.screened[name] = []
        return PeerReply(absent=str(error))
    ways = session.screened[name]
    found = tuple((way.error, way.tolerance) for way in ways)
    return PeerReply(tuple(way.variant.name for way in ways), None, found)


def beside(session: Session, steps: Any, peers: list[str], budget_s: float) -> BesideReply:
    """Time one schedule and every way of the peers in interleaved rounds."""
    absent = {}
    for name in peers:
        if name in session.screened:
            continue
        if (reason := peer(session, name, steps).absent) is not None:
            absent[name] = reason
    ways = [way for name in peers for way in session.screened[name]]
    call = session.call(steps)
    session.check(call, steps)

    def ours(repeat: int) -> None:
        for _ in range(repeat):  # entered from Python each time, as every peer is
            call(1)

    threads, cold = session.target.threads, session.how_cold(call)
    first = Samples(1, threads)
    first.take(ours)
    spent = [first.last_s, *(way.seconds for way in ways)]
    emptying = evicting_s(session.target) if cold else 0.0
    fitting = int(budget_s / sum(sample_cost(seconds, threads) + emptying for seconds in spent))
    rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, fitting))
    runs = [ours, *(way.variant.run for way in ways)]
    if cold:
        variants, made = [way.variant for way in ways], partial(_made, session, peers)
        runs = [session.on_copies(steps, call), *on_every_place(session, variants, made)]
    (own, *theirs), peak = _with_peak(session, runs, rounds, cold)
    told = tuple(
        TimedWay(way.variant.peer, way.variant.name, way.variant.output, tuple(samples.times))
        for way, samples in zip(ways, theirs, strict=True)
    )
    return BesideReply(tuple(own.times), told, absent, peak)


def _made(session: Session, peers: list[str], operands: Operands) -> list[Variant]:
    """The ways of peers that are there, on these operands."""
    there = [name for name in peers if session.screened[name]]
    threads = session.target.threads
    makers = [session.makers[name] for name in there]
    return [way for make in makers for way in make(session.problem, operands, threads)]


def _maker(session: Session, steps: Any) -> Maker:
    return LibraryMaker(Schedule.from_json(steps), session.target).variants


def _with_peak(
    session: Session, runs: list[Run], rounds: int, cold: ColdMode | None
) -> tuple[list[Samples], float]:
    """Interleaved rounds, and the multiply-add peak around them in GFLOP/s.

    The peak is the best of before and after: a bound has to lie above what it bounds, and
    its median in the same rounds does not (kernels reached 104 to 110% of it here).
    """
    before = session.peak()
    timed = interleave(runs, rounds, session.target.threads, cold)
    return timed, max(before, session.peak())
