import subprocess
import sys
from dataclasses import replace
from math import log

import pytest

from benchmarks.memory_store import MemoryStore
from tests.search.engine.fakes import FakeRunner, Fluctuating, Long, in_turn, run
from tilewise.kernels.schedule import Schedule
from tilewise.search import budget as budget_module
from tilewise.search.budget import Budget
from tilewise.search.final_benchmark import benchmark
from tilewise.search.final_benchmark.benchmark import CONTENDERS, FINALISTS, PLACEMENTS
from tilewise.search.records import TuneRequest
from tilewise.search.runner.protocol import CandidateFailureError


class Clock:
    """Seconds of budgets, which pass only when somebody spends them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(budget_module.time, "monotonic", lambda: self.now)


class SlowRunner(FakeRunner):
    """A runner that takes time by the clock: to start, for a trial, for rounds."""

    start_s = 1.2

    def __init__(self, clock: Clock, trial_s: float) -> None:
        super().__init__()
        self.clock, self.trial_s = clock, trial_s
        self.fresh = True
        self.processes = 0

    def _start(self) -> None:
        if self.fresh:
            self.clock.now += self.start_s
            self.processes += 1
        self.fresh = False

    def renew(self) -> None:
        self.fresh = True

    def trial(self, steps, best_s, control=None):
        self._start()
        self.clock.now += self.trial_s
        return super().trial(steps, best_s, control)

    def time_finalists(self, schedules, rounds, peers, placements=1, budget_s=None):
        begin = self.clock.now
        self._start()
        wanted_s = rounds * placements * len(schedules) * 1e-3
        left_s = begin + budget_s - self.clock.now
        self.clock.now += 0.2 + max(0.0, min(wanted_s, left_s - 0.2))
        return super().time_finalists(schedules, rounds, peers, placements, budget_s)


@pytest.mark.parametrize(
    ("seconds", "trial_s", "proof_s"), [(10.0, 0.1, 2.0), (15.0, 0.3, 0.8), (60.0, 0.3, 2.0)]
)
def test_seconds_are_kept_within_five_percent(monkeypatch, seconds, trial_s, proof_s) -> None:
    clock = Clock(monkeypatch)
    asked_until = []

    def prove(trials, until) -> None:
        asked_until.append(until - clock.now)
        clock.now += proof_s
        assert trials == sorted(trials, key=lambda t: t.measurement.time_us)

    runner = SlowRunner(clock, trial_s)
    began = clock.now
    request = TuneRequest(trials=2000, seconds=seconds, sampler="random")
    result, *_ = run(request, runner=runner, before_final=prove)
    spent = clock.now - began
    if result.complete:
        assert spent < seconds, "the space or the trials ran dry first"
    else:
        after = Budget(TuneRequest(), 0.0, runner.start_s).end_s
        assert abs(spent + after - seconds) <= 0.05 * seconds
    assert len(asked_until) == 1 and result.best is not None
    assert runner.processes == 2, "the finals are split over two processes"
    assert result.best.placements == 2 * PLACEMENTS


def over_after(budget: Budget, clock: Clock) -> float:
    """Seconds from which no trial begins any more."""
    clock.now = budget.began
    while not budget.search_is_over():
        clock.now += 0.01
    return clock.now - budget.began


def test_a_trial_that_would_end_too_late_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    short, long = (Budget(TuneRequest(seconds=20.0), clock.now, start_s=0.5) for _ in range(2))
    for seconds in (5.0, 1.2, 30.0, 1.2):  # the first made buffers, one hung
        long.took(seconds)
    assert over_after(long, clock) == pytest.approx(over_after(short, clock) - 1.2, abs=0.02)


class Ahead(FakeRunner):
    """A runner that compiles three candidates ahead, and notes the order of events."""

    ahead = 3

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, str]] = []

    def prepare(self, steps):
        self.events.append(("prepare", Schedule.from_json(steps).hash))

    def settle(self):
        self.events.append(("settle", ""))

    def trial(self, steps, best_s, control=None):
        self.events.append(("trial", Schedule.from_json(steps).hash))
        return super().trial(steps, best_s, control)

    def time_finalists(self, *given):
        self.events.append(("finals", ""))
        return super().time_finalists(*given)


def test_candidates_are_compiled_ahead_of_their_trial_and_each_once() -> None:
    runner = Ahead()
    result, *_ = run(TuneRequest(trials=30), runner=runner)
    prepared = [name for what, name in runner.events if what == "prepare"]
    tried = [name for what, name in runner.events if what == "trial"]
    assert prepared == tried and len(set(tried)) == len(result.trials) == 30
    first = [what for what, _ in runner.events[:8]]
    assert first == ["prepare"] * 4 + ["trial", "prepare", "trial", "prepare"]
    ends = [what for what, _ in runner.events if what in ("settle", "finals")]
    assert ends == ["settle"] + ["finals"] * 2, "nothing compiles beside the finals"


def test_what_failed_in_an_earlier_search_is_not_tried_again() -> None:
    store = MemoryStore()
    first = FakeRunner()
    run(TuneRequest(trials=10), store, runner=first)
    refused = set(first.hashes[:4])

    class Remembering(MemoryStore):
        def known_failures(self) -> set[str]:
            return refused

    runner = FakeRunner()
    result, *_ = run(TuneRequest(trials=10), Remembering(), runner=runner)
    assert len(result.trials) == 10 and not refused & set(runner.hashes)


def test_a_fresh_process_that_fails_leaves_what_the_first_has_said() -> None:
    class Once(FakeRunner):
        def renew(self):
            self.finals_fail = 1

    result, *_ = run(TuneRequest(trials=12), runner=Once())
    assert result.best is not None and result.best.placements == PLACEMENTS
    assert len(result.best.runners_up) == FINALISTS - 1


class Seen(FakeRunner):
    """A runner that notes how many meet, and in how many processes."""

    def __init__(self) -> None:
        super().__init__()
        self.met: list[int] = []
        self.processes = 1

    def renew(self):
        self.processes += 1

    def time_finalists(self, schedules, *given):
        self.met.append(len(schedules))
        return super().time_finalists(schedules, *given)


@pytest.mark.parametrize(("most_pace", "times"), [(1.05, 1), (1.5, benchmark.WHEN_NOISY)])
def test_more_take_part_where_the_machine_was_noisy(most_pace: float, times: int) -> None:
    runner = type("Noisy", (Seen, Fluctuating), {"most_pace": most_pace})()
    best = run(TuneRequest(trials=60), runner=runner)[0].best
    assert runner.met[0] == times * CONTENDERS
    assert best is not None and best.spread == pytest.approx(log(most_pace))
    assert best.taken > best.rounds > 0


def test_of_long_ones_the_best_of_a_semifinal_do() -> None:
    class LongSeen(Seen, Long):
        @staticmethod
        def seconds(schedule: Schedule) -> float:
            different = 1 + int(schedule.hash, 16) % 997 * 1e-5
            return Long.seconds(schedule) * different

    runner, request = LongSeen(), TuneRequest(trials=40)
    result, *_ = run(request, runner=runner)
    first, *finals = runner.met
    assert FINALISTS < first <= CONTENDERS and finals == [FINALISTS] * 2
    fastest_s = min(runner.seconds(t.schedule) for t in result.trials if t.state == "timed")
    assert runner.seconds(result.best.schedule) == fastest_s


class Disturbed(Seen):
    """In the first so many processes all takes half as long again, what leads twice as long."""

    def __init__(self, processes: int) -> None:
        super().__init__()
        self.disturbed = processes

    def time_finalists(self, schedules, *given):
        reply = super().time_finalists(schedules, *given)
        if self.processes > self.disturbed:
            return reply
        disturbed = []
        for place, one in enumerate(reply.finalists):
            slower = 1.5 if place else 2.0
            disturbed.append(in_turn([[slower * t for t in ts] for ts in one.times], one.rounds))
        return replace(reply, finalists=tuple(disturbed))


def found(runner: FakeRunner, **limits: float) -> Schedule:
    return run(TuneRequest(**{"trials": 40, **limits}), runner=runner)[0].best.schedule


def test_finals_wait_for_times_as_quiet_as_the_search_has_seen() -> None:
    calm, waiting = Seen(), Disturbed(3)
    wanted = found(calm)
    assert found(waiting) == wanted
    assert (calm.processes, waiting.processes) == (2, 4)


def test_nobody_waits_for_ever_or_in_a_budget_of_seconds() -> None:
    assert found(Disturbed(1000)) != found(Seen())
    few = {"trials": benchmark.ENOUGH_SPEED_FACTORS - 1}  # which have seen little
    for limits, processes in (({}, 2 + benchmark.WAITING), ({"seconds": 60.0}, 2), (few, 2)):
        runner = Disturbed(1000)
        found(runner, **limits)
        assert runner.processes == processes


def test_nobody_waits_once_the_job_is_to_stop() -> None:
    runner = Disturbed(1000)
    run(TuneRequest(trials=40), runner=runner, should_stop=lambda: runner.processes > 2)
    assert runner.processes == 3


@pytest.mark.parametrize(("who", "met"), [
    ("first", [1, 11, 11]), ("many", [*[1] * CONTENDERS, 4, 4]),
    ("peers", [*[1] * CONTENDERS, CONTENDERS, CONTENDERS]),
])  # fmt: skip
def test_who_takes_the_process_down_does_not_take_all_others_along(who, met) -> None:
    class Crashing(Seen):
        def time_finalists(self, schedules, rounds, peers, *given):
            self.met.append(len(schedules))
            self.first = getattr(self, "first", schedules[0])
            many, first = len(schedules) > FINALISTS, self.first in schedules
            if {"first": first, "many": many, "peers": peers}[who]:
                raise CandidateFailureError("crash", "SIGSEGV")
            return FakeRunner.time_finalists(self, schedules, rounds, peers, *given)

    runner = Crashing()
    found(runner, peers=who == "peers")
    assert runner.met == [CONTENDERS, *met]


def test_a_search_whose_finalists_all_fail_says_why() -> None:
    runner = FakeRunner()
    runner.finals_fail, runner.failing_final = 99, 0
    result, *_ = run(TuneRequest(trials=4), runner=runner)
    assert result.best is None and result.finalist_failure == "wrong: now and then"


def test_the_first_trial_does_not_wait_for_other_libraries() -> None:
    code = "import sys, tilewise.search.runner.child; "
    code += "sys.exit(any('peers' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
