"""How samples are taken, of hot and of cold caches."""

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.statistics import median_interval
from tilewise.kernels.target import detect
from tilewise.search.runner.runner import Runner
from tilewise.search.timing import cold, measure, samples
from tilewise.search.timing.cold import ColdMode, cold_mode, in_turn, least_s
from tilewise.search.timing.measure import interleave
from tilewise.search.timing.samples import PREEMPTED_S, Samples, summarise, waits


class Clocks:
    """Clocks that only runs move: those of the machine would show who else computes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = self.thread = 0.0
        self.waits = 0
        monkeypatch.setattr(samples.time, "perf_counter", lambda: self.wall)
        monkeypatch.setattr(samples.time, "thread_time", lambda: self.thread)
        monkeypatch.setattr(samples, "waits", lambda: self.waits)

    def run_of(self, seconds: float, taken_away: Sequence[float] = ()) -> samples.Run:
        """Runs of so many seconds, the first few of them preempted for so long."""
        away = iter(taken_away)

        def run(repeat: int) -> None:
            self.thread += repeat * seconds
            self.wall += repeat * seconds + next(away, 0.0)

        return run

    def waiting(self, seconds: float) -> samples.Run:
        """Runs in which the thread gives up its processor for so many seconds."""

        def run(repeat: int) -> None:
            self.wall += repeat * seconds
            self.thread += repeat * seconds / 100
            self.waits += 1

        return run


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.mark.parametrize("count", [6, 9, 15, 25, 60])
def test_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    rng = random.Random(count)
    low, high = median_interval(count)
    held = 0
    for _ in range(4000):
        ordered = sorted(rng.expovariate(1.0) for _ in range(count))
        held += ordered[low] <= 0.6931471805599453 <= ordered[high]
    assert 0.94 <= held / 4000 <= 0.999


def test_summary_in_the_units_it_promises() -> None:
    times = [2e-3, 1e-3, 4e-3, 2e-3, 2e-3, 3e-3, 1e-3]
    summary = summarise(times, 2_000_000)
    assert summary.time_us == pytest.approx(median(times) * 1e6)
    assert summary.gflops == pytest.approx(1.0)
    assert summary.interval[0] <= summary.gflops <= summary.interval[1]
    with pytest.raises(ValueError, match="no times"):
        summarise([], 1)


@pytest.mark.parametrize("repeat", [1, 4])
def test_a_preempted_sample_counts_by_the_time_of_its_thread(clocks: Clocks, repeat: int) -> None:
    samples = Samples(repeat)
    samples.take(clocks.run_of(1e-3, [1.0]))
    assert (samples.times, samples.preempted) == (pytest.approx([1e-3]), 1), "of one run"
    assert samples.last_s == samples.least_s == pytest.approx(1e-3)
    samples.take(clocks.run_of(2e-3))
    assert (samples.times, samples.preempted) == (pytest.approx([1e-3, 2e-3]), 1)
    assert (samples.last_s, samples.least_s) == pytest.approx((2e-3, 1e-3))


def test_a_run_that_waits_for_others_counts_by_the_time_that_passes(clocks: Clocks) -> None:
    samples = Samples(1)
    samples.take(clocks.waiting(0.005))
    assert (samples.times, samples.preempted) == (pytest.approx([0.005]), 0)
    assert samples.last_s == samples.least_s == pytest.approx(0.005)


def test_a_thread_that_sleeps_is_known_to_wait() -> None:
    before = waits()
    time.sleep(1e-4)
    assert waits() > before


@pytest.mark.parametrize(("seconds", "away_s"), [(1e-4, PREEMPTED_S), (5e-3, 1.5e-4)])
def test_a_sample_is_preempted_by_more_than_clocks_differ(seconds, away_s, clocks) -> None:
    """A few microseconds pass between the two clocks; of a long sample, a small part may go."""
    for share, preempted in ((0.9, 0), (1.1, 1)):
        samples = Samples(1)
        samples.take(clocks.run_of(seconds, [share * away_s]))
        assert samples.preempted == preempted


def test_other_processes_delay_a_measurement_and_do_not_shorten_it(clocks: Clocks) -> None:
    run = clocks.run_of(0.014, [0.150] * 99)
    samples, stopped = measure.measure(run, budget_s=0.08)
    assert samples.times == pytest.approx([0.014] * measure.FEW_SAMPLES)
    assert not stopped


def test_slow_candidates_stop_early_and_fast_ones_do_not(clocks: Clocks) -> None:
    samples, stopped = measure.measure(clocks.run_of(0.004), 0.1, stop_above_s=0.001)
    assert (len(samples.times), stopped) == (1, True), "one sample far above the limit says enough"
    samples, stopped = measure.measure(clocks.run_of(0.004), 0.1, stop_above_s=0.003)
    assert (len(samples.times), stopped) == (measure.DECIDE_AFTER, True)
    samples, stopped = measure.measure(clocks.run_of(0.0005), 0.05, stop_above_s=1.0)
    assert (len(samples.times), stopped) == (measure.LEAST_SAMPLES, False)


def test_a_candidate_that_is_behind_gets_few_samples_and_is_not_called_stopped(clocks) -> None:
    run = clocks.run_of(0.003)
    for behind_s, count in ((0.002, measure.FEW_SAMPLES), (0.05, measure.LEAST_SAMPLES)):
        taken, stopped = measure.measure(run, 1.0, 0.1, samples=Samples(1), behind_s=behind_s)
        assert (len(taken.times), stopped) == (count, False)


@pytest.mark.parametrize("few", [True, False])
def test_an_interval_is_narrow_when_its_half_is(few: bool) -> None:
    for width, narrow in ((1.9, True), (2.1, False)):
        ends = [1 - width * samples.WIDTH / 2, 1 + width * samples.WIDTH / 2]
        within = [0.9, *ends * 4, 1.0, 1.1] if not few else [*ends, 1.0]
        assert samples.is_narrow(within) == narrow


def test_of_rounds_that_are_late_two_are_timed_anyway(clocks: Clocks) -> None:
    runs = [clocks.run_of(seconds) for seconds in (1e-3, 2e-3)]
    late = interleave(runs, 9, until=time.monotonic() - 1)
    assert [one.rounds for one in late] == [[0, 1]] * 2
    in_time = interleave(runs, 9, until=time.monotonic() + 1e6)
    assert [one.rounds for one in in_time] == [list(range(9))] * 2


def test_samples_that_spread_are_taken_until_the_interval_is_narrow_or_the_budget_ends(clocks):
    draws = random.Random(1)

    def spread(_repeat: int) -> None:
        clocks.run_of(2.5e-3 * draws.lognormvariate(0, 0.1))(1)

    most, _ = measure.measure(spread, 1.0)
    assert len(most.times) == measure.MOST_SAMPLES
    assert not samples.is_narrow(most.times)
    until, _ = measure.measure(spread, 0.03)
    assert measure.LEAST_SAMPLES < len(until.times) < measure.MOST_SAMPLES


def test_short_runs_are_repeated_within_a_sample(clocks: Clocks) -> None:
    assert samples.start(clocks.run_of(2e-6)).repeat == 250
    assert samples.start(clocks.run_of(2e-3)).repeat == 1
    assert samples.start(clocks.run_of(2e-6), threads=2).repeat == 250


@pytest.mark.parametrize("seconds", [10e-3, 60e-3])
@pytest.mark.parametrize("preempted", [0, 1, 2])
def test_a_short_run_that_is_preempted_is_not_taken_for_a_long_one(preempted, seconds, monkeypatch):
    taken_away = [0.0] * preempted + [seconds]
    assert samples.start(Clocks(monkeypatch).run_of(2e-6, taken_away)).repeat == 250


@pytest.mark.parametrize(
    ("seconds", "one"), [(0.1e-3, "aa"), (1e-3, "aa"), (5e-3, "aa"), (20e-3, "a")]
)
def test_each_interleaved_sample_follows_a_run_of_its_own(seconds, one, monkeypatch) -> None:
    """Unless that is very long."""
    calls: list[str] = []
    spin = Clocks(monkeypatch).run_of(seconds)
    runs = [lambda r, n=n: calls.append(n) or spin(r) for n in "abc"]
    all_samples = interleave(runs, 6)
    assert [len(s.times) for s in all_samples] == [6, 6, 6]
    last = calls[-18 * len(one) :]
    turns = [last[at : at + len(one)] for at in range(0, len(last), len(one))]
    assert all(turn == [turn[0]] * len(one) for turn in turns)


def test_nobody_always_comes_after_the_same_and_all_come_as_often_first(monkeypatch) -> None:
    calls: list[str] = []
    spin = Clocks(monkeypatch).run_of(20e-3)
    names = "abcde"
    interleave([lambda r, n=n: calls.append(n) or spin(r) for n in names], 40)
    rounds = ["".join(calls[at : at + 5]) for at in range(len(calls) - 200, len(calls), 5)]
    assert all(set(one) == set(names) for one in rounds)
    assert rounds[1::2] == [one[::-1] for one in rounds[::2]], "a drift meets them alike"
    after = {pair for one in rounds for pair in pairwise(one)}
    assert len(after) == 20, "everyone has come after everyone else"


def test_on_several_threads_a_pause_and_an_untimed_run_come_before_each_sample(monkeypatch) -> None:
    calls: list[str] = []  # `.` for a pause
    monkeypatch.setattr(samples.time, "sleep", lambda _: calls.append("."))
    spin = Clocks(monkeypatch).run_of(1e-3)
    interleave([lambda r, n=n: calls.append(n) or spin(r) for n in "ab"], 4, threads=2)
    log = "".join(calls)
    assert log.endswith(".aa.bb.bb.aa.bb.aa.aa.bb")
    assert log.startswith(".a") and log.count(".") == 2 + 8


def test_the_cost_of_a_sample_counts_what_comes_before_it() -> None:
    assert samples.sample_cost(1e-6, 1) == pytest.approx(samples.SAMPLE_S, rel=0.01)
    led = samples.LEADING_RUNS
    assert samples.sample_cost(0.4e-3, 1) == pytest.approx(0.5e-3 + led * 0.4e-3)
    assert samples.sample_cost(3e-3, 1) == pytest.approx((led + 1) * 3e-3)
    assert samples.sample_cost(1.0, 1) == 1.0
    assert samples.sample_cost(3e-3, 1, is_cold=True) == 3e-3
    assert samples.sample_cost(1.0, 2) == 2.0 + samples.PAUSE_S


@pytest.mark.parametrize("spare", [0, 1])
def test_short_runs_take_turns_over_copies_and_long_ones_do_not(spare: int, monkeypatch) -> None:
    monkeypatch.setattr(cold, "usable_processors", lambda: [*range(spare + 1)])
    assert cold_mode(1e-3, 1 << 10, 32 << 20).copies == 1 + spare, "that wakes threads"
    assert cold_mode(10e-6, 1 << 10, 32 << 20).copies == 4 + spare
    assert cold_mode(1e-9, 1 << 10, 32 << 20).copies == cold.MOST_COPIES + spare
    assert cold_mode(1e-9, 64 << 20, 32 << 20).copies == 4, "copies have to fit in memory"
    assert (one := cold_mode(1e-3, 129 << 20, 0)).copies == 1 and one.spare == 0
    assert cold_mode(1.0, 1, 64 << 20).buffer.nbytes == 128 << 20, "more than the caches hold"
    assert cold_mode(1.0, 1, 0).buffer.nbytes == cold.LEAST_BUFFER


@pytest.mark.parametrize(("lengths", "least", "runs"), [
    ([0.02, 1e-5, 0.03, 2e-5, 1e-5], 1e-5, 5), ([0.15], 0.15, 1), ([0.08, 0.03], 0.03, 2),
])  # fmt: skip
def test_one_preempted_run_does_not_tell_how_long_runs_are(lengths, least, runs, monkeypatch):
    now, left = [0.0], list(lengths)
    monkeypatch.setattr(cold.time, "perf_counter", lambda: now[0])

    def run(_repeat: int) -> None:
        now[0] += left.pop(0)

    assert least_s(run) == pytest.approx(least)
    assert len(lengths) - len(left) == runs


def test_a_large_cache_is_allowed_the_memory_and_the_time_that_emptying_it_takes() -> None:
    small = replace(detect(), l2_bytes=1 << 20, l3_bytes=16 << 20)
    large = replace(small, l3_bytes=480 << 20)
    assert cold.added_bytes(large) - cold.added_bytes(small) == 2 * (480 - 16) << 20
    assert cold.evicting_s(large) == pytest.approx(30 * cold.evicting_s(small))
    problem = Matmul(m=8, n=8, k=8, dtype="f32")
    one, hot = (Runner(problem, detect().canonical, cache=cache) for cache in ("cold", "hot"))
    with one, hot:
        added = one._limits.memory_bytes - hot._limits.memory_bytes
    assert added == cold.added_bytes(detect())


def test_the_caches_of_every_processor_are_emptied_the_last_one_last(monkeypatch) -> None:
    at, log = np.zeros(cold.walked_bytes(0) // 8), []
    monkeypatch.setattr(cold, "usable_processors", lambda: [0, 1, 2])
    monkeypatch.setattr(cold, "pin", lambda p: log.append((p, at[0], at[-1])) or {0, 1, 2})
    ColdMode(1, at).evict()
    assert log == [({0}, 0, 0), ({1}, 0, 0), ({2}, 1, 0), ({0}, 2, 0), ({0, 1, 2}, 3, 1)]


@pytest.mark.parametrize("spare", [0, 1])
def test_every_cold_sample_comes_after_a_walk_and_touches_each_copy_once(spare, monkeypatch):
    log: list[str] = []
    monkeypatch.setattr(ColdMode, "evict", lambda _: log.append("|"))
    run = in_turn([lambda _r, n=n: log.append(n) or time.sleep(1e-4) for n in "abc"])
    taken = samples.start(run, 2, ColdMode(3, np.zeros(1), spare))
    begin = time.perf_counter()
    for _ in range(3):
        taken.take(run)
    spent = time.perf_counter() - begin
    assert ("".join(log), taken.repeat, taken.lead) == ("a|bca|bca|bca", 3 - spare, 0)
    assert all(t >= 1e-4 for t in taken.times), "the time of one run, not of the turn"
    assert taken.repeat * sum(taken.times) <= spent


@pytest.mark.parametrize("size", [16, pytest.param(320, marks=pytest.mark.full)])
def test_a_cold_candidate_is_timed_and_says_how(size: int) -> None:
    problem = Matmul(m=size, n=size, k=size, dtype="f32")
    lanes = detect().lanes("f32")
    steps = [list(Schedule((Pack("B"), Register(r, lanes))).to_json()) for r in (1, 4)]
    with Runner(problem, detect().canonical, cache="cold") as one:
        reply = one.trial(steps[0], None)
        assert reply.times and reply.max_error < 0.01
        finals = one.time_finalists(steps, 3, peers=True, placements=2)
    assert "written before each sample" in finals.cold
    assert ("copies" in finals.cold) == (size == 16)
    assert [len(one.times) for one in finals.finalists] == [2, 2]
    assert finals.peers["openblas"]
