"""Sessions, trials, finals and accuracy in a runner's child."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.cases import some
from tests.search.registers import steps
from tests.search.timing.test_measure import Clocks
from tilewise.kernels.oracle.accuracy import KINDS, MOST_TIMES
from tilewise.kernels.problem import Conv2d, parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Tile, Winograd
from tilewise.kernels.target import detect
from tilewise.search.peers.variant import Variant
from tilewise.search.runner.child import interleaved
from tilewise.search.runner.child import trial as module
from tilewise.search.runner.child.accuracy import check_accuracy, errors_of
from tilewise.search.runner.child.interleaved import time_finalists
from tilewise.search.runner.child.session import Session
from tilewise.search.runner.child.trial import BEHIND, CLEARLY_SLOWER, FIRST_RUN, trial
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.space.algorithms import LEAST_CHANNELS
from tilewise.search.timing.measure import LEAST_SAMPLES
from tilewise.search.timing.samples import Run, Samples

TEXT = "matmul:m=24,n=40,k=16,dtype=f32"


def session_of(text: str = TEXT) -> Session:
    return Session(parse_problem(text).canonical, detect().canonical, seed=0)


@pytest.mark.parametrize("init", ["zero", "accumulate"])
def test_each_check_begins_with_the_same_result_and_needs_one_that_is_written(init: str) -> None:
    one = session_of(f"{TEXT},init={init}")
    initial = one.operands["C"].copy()
    for rows in (1, 4, 2):
        call = one.call(steps(rows))
        one.check(call)
        call(3 if init == "accumulate" else 1)
    if init == "accumulate":
        one.operands["C"][...] = initial
    with pytest.raises(CandidateFailureError, match="deviation"):
        one.check(lambda _repeat: None)


@pytest.mark.parametrize("weights", ["variable", "constant"])
def test_schedules_share_panels_but_for_those_that_are_packed_ahead(weights: str) -> None:
    one = session_of(f"{TEXT},weights={weights}")
    first = one.call(steps(1))
    held = one.places[0].arena["B"]
    one.call(steps(4))
    assert (one.places[0].arena["B"] is held) == (weights == "variable")
    one.check(first)


def test_a_peer_that_takes_far_longer_keeps_the_time_of_its_check() -> None:
    one, never = session_of(), Mock()
    for name, run, seconds in (("slow", never, 60.0), ("fast", lambda n: sum(range(n << 9)), 0.5)):
        variant = Variant(name, "mm", run, lambda: one.operands["C"])
        one.screened[name] = [SimpleNamespace(variant=variant, seconds=seconds)]
    slow, fast = interleaved.time_with_peers(one, steps(1), ["slow", "fast"], 0.1).ways
    assert slow.times == (60.0,) and not never.called and len(fast.times) >= 7


class Timing:
    """Rounds that take their time by a clock of their own, and note when they had to end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, placement_s: float) -> None:
        self.now, self.placement_s = 100.0, placement_s
        self.until: list[float | None] = []
        monkeypatch.setattr(interleaved, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(interleaved, "interleave", self.interleave)
        self.session = session_of()
        monkeypatch.setattr(self.session, "peak", self.peak)

    def peak(self) -> float:
        self.now += 0.25
        return 100.0 + len(self.until)

    def interleave(self, runs, rounds, threads, cold, until) -> list[Samples]:
        self.until.append(until)
        self.now += self.placement_s
        at = float(len(self.until))
        return [Samples(1, times=[at] * rounds, rounds=list(range(rounds))) for _ in runs]


@pytest.mark.parametrize(("budget_s", "placement_s", "placements"), [
    (None, 1e6, 4), (8.0, 0.5, 4), (8.0, 1.9, 4), (8.0, 3.0, 2), (8.0, 9.0, 1), (0.0, 1e-3, 1),
])  # fmt: skip
def test_no_placement_begins_too_late(monkeypatch, budget_s, placement_s, placements) -> None:
    """That is, once its share of the budget is spent."""
    timing = Timing(monkeypatch, placement_s)
    reply = time_finalists(timing.session, [steps(1), steps(4)], 3, False, 4, budget_s)
    assert len(timing.until) == placements
    for one in reply.finalists:
        assert one.times == tuple((float(at),) * 3 for at in range(1, placements + 1))
        assert one.rounds == ((0, 1, 2),) * placements
    assert reply.peak_gflops == 100.0 + placements, "the best of those around placements"


def test_a_finalist_that_is_wrong_is_named_before_anything_is_timed(monkeypatch) -> None:
    timing = Timing(monkeypatch, 0.5)
    call = timing.session.call
    monkeypatch.setattr(
        timing.session, "call", lambda s: (lambda _repeat: None) if s == steps(4) else call(s)
    )
    with pytest.raises(CandidateFailureError, match="deviation") as caught:
        time_finalists(timing.session, [steps(1), steps(4), steps(2)], 3, False)
    assert (caught.value.kind, caught.value.index) == ("wrong", 1)
    assert timing.until == []


BEST_S = 5e-3
LIMIT_S = FIRST_RUN * CLEARLY_SLOWER * BEST_S  # of the run that is checked


class FakeSession:
    """Schedules that are the seconds that they take, at the machine's present speed_factor."""

    target = SimpleNamespace(threads=1)
    cache = "hot"

    def __init__(self, clocks: Clocks) -> None:
        self.clocks, self.now = clocks, 1.0
        self.speed_factor, self.control = None, None
        self.called: list[float] = []

    def call(self, seconds: float) -> Run:
        def run(repeat: int) -> None:
            self.called.append(seconds)
            self.clocks.run_of(seconds * self.now)(repeat)

        return run

    def check(self, run: Run, _steps: Any) -> float:
        run(1)
        return 0.0

    def accuracy(self, _steps: Any) -> dict[str, float]:
        return {}

    def how_cold(self, _run: Run) -> None:
        return None

    def on_copies(self, _steps: Any, run: Run) -> Run:
        return run


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    clocks = Clocks(monkeypatch)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clocks.wall)
    return FakeSession(clocks)


def control(seconds: float) -> dict[str, float]:
    return {"steps": seconds, "seconds": seconds}


@pytest.mark.parametrize(("times", "stopped"), [(0.99, False), (1.01, True)])
def test_a_long_run_that_is_hopeless_when_it_is_checked_is_not_run_again(session, times, stopped):
    reply = trial(session, times * LIMIT_S, BEST_S)
    assert reply.pruned, "in the end either is"
    assert (len(session.called) == 1) == stopped
    assert reply.times[0] == pytest.approx(times * LIMIT_S)


def test_what_is_hopeless_is_so_at_the_pace_that_a_control_told_last(session: FakeSession) -> None:
    session.now = 2.4  # at 1, the first would be hopeless
    first = trial(session, BEST_S, BEST_S, control(BEST_S))
    assert first.speed_factor == session.speed_factor == pytest.approx(2.4)
    session.called.clear()
    trial(session, 0.99 * LIMIT_S, BEST_S, control(BEST_S))
    assert len(session.called) > 1
    session.called.clear()
    late = trial(session, 1.01 * LIMIT_S, BEST_S, control(BEST_S))
    assert late.pruned and session.called == [1.01 * LIMIT_S]
    assert late.speed_factor == pytest.approx(2.4), "as far as anybody knows"
    trial(session, BEST_S, None)
    assert session.speed_factor == pytest.approx(2.4), "until another control tells another"


def test_who_is_behind_gets_fewer_samples_than_who_may_be_the_best(session: FakeSession) -> None:
    behind = trial(session, 1.01 * BEHIND * BEST_S, BEST_S)
    near = trial(session, 0.99 * BEHIND * BEST_S, BEST_S)
    assert not behind.pruned and not near.pruned
    assert len(behind.times) < LEAST_SAMPLES <= len(near.times)


HOST = detect()
COLS = 2 * HOST.lanes("f32")


def convolution(ci: int) -> Conv2d:
    return parse_problem(f"conv2d:n=1,h=14,w=14,ci={ci},co=40,kh=3,kw=3,pad=1,dtype=f32")


def filtered(output: int, rows: int = 4) -> Schedule:
    return Schedule((Winograd(output), Pack("B"), Tile("t", rows), Pack("A"), Register(rows, COLS)))


OFFERED = [
    (*taps, output, least)
    for sides, outputs in LEAST_CHANNELS.items()
    for taps in sorted({sides, sides[::-1]})
    for output, least in outputs.items()
]


@pytest.mark.parametrize(("kh", "kw", "output", "least"), some(OFFERED, all_of=2))
def test_what_the_space_offers_is_accurate_enough(kh, kw, output, least) -> None:
    for ci in (least, 4 * least):
        problem = replace(convolution(ci), kh=kh, kw=kw)
        for rows in (5, 12):
            errors = check_accuracy(problem, filtered(output, rows), HOST)
            assert all(0 < times <= MOST_TIMES for times in errors.values())


def test_a_method_that_is_off_is_found_along_either_axis() -> None:
    """Of a filter that lies as of one that stands: the strip has whole tiles of both."""
    for kh, kw in ((1, 5), (5, 1)):
        problem = replace(convolution(32), kh=kh, kw=kw)
        assert max(errors_of(problem, filtered(4), HOST).values()) < MOST_TIMES
        shallow = replace(problem, ci=1)
        assert max(errors_of(shallow, filtered(4), HOST).values()) > MOST_TIMES


def test_a_trial_tells_the_errors_and_a_wrong_one_fails() -> None:
    session = session_of(convolution(16).canonical)
    reply = trial(session, list(filtered(4).to_json()), None)
    assert set(reply.accuracy) == set(KINDS)
    assert reply.max_error < 0.01
    direct = Schedule((Tile("n", 1), Pack("A"), Register(4, COLS)))
    assert trial(session, list(direct.to_json()), None).accuracy == {}
    shallow = session_of(convolution(1).canonical)
    assert trial(shallow, list(filtered(2).to_json()), None).accuracy
    with pytest.raises(CandidateFailureError, match="times the direct method's") as failed:
        trial(shallow, list(filtered(4).to_json()), None)
    assert failed.value.kind == "wrong"
