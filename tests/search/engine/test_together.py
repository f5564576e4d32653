"""A search that is shared, and one whose first trials set a wrong scale."""

from dataclasses import replace

import pytest

from benchmarks.memory_store import MemoryStore
from tests.search.engine.fakes import SQUARE, FakeRunner, run
from tilewise.kernels.schedule import Schedule
from tilewise.search.engine import distributed
from tilewise.search.engine.distributed import EACH
from tilewise.search.engine.exploration import attempt
from tilewise.search.helpers import Exchanged, Helped
from tilewise.search.progress import SearchPhase
from tilewise.search.records import TuneRequest
from tilewise.search.timing.speed_factor import WORTH


class Machines:
    """Helpers in memory: at each exchange each tries one candidate of those that are out.

    `loses` has the numbers of exchanges at which a candidate that one has is lost.
    """

    def __init__(self, store, count, factor=1.0, loses=()):
        self.store, self.count, self.factor, self.loses = store, count, factor, set(loses)
        self.runner, self.asked, self.most_out, self.calls = FakeRunner(), [], 0, 0
        self.out = {}

    def exchange(self, start, offered, back, late_s):
        self.calls += 1
        self.asked += offered
        self.out |= {candidate.number: candidate for candidate in offered}
        self.most_out = max(self.most_out, len(self.out))
        for number in back:
            del self.out[number]
        if self.calls in self.loses and self.out:
            del self.out[min(self.out)]
        helped = [self.tried(number, start) for number in sorted(self.out)[: self.count]]
        return Exchanged(helped, set(self.out), self.count)

    def tried(self, number, start):
        candidate = self.out.pop(number)
        trial = attempt(self.reply, candidate, SQUARE.flops)
        trials = self.store.trials()
        stored = replace(trial, number=trials[-1].number + 1 if trials else 0, takes_over=False)
        self.store.add(stored)
        return Helped(number, stored, "there")

    def reply(self, steps, best_s, control):
        reply = self.runner.trial(steps, best_s, control)
        times = tuple(self.factor * seconds for seconds in reply.times)
        return replace(reply, times=times, speed_factor=self.factor)


@pytest.fixture(autouse=True)
def looks(monkeypatch):
    monkeypatch.setattr(distributed, "LOOK_S", 0.0)
    monkeypatch.setattr(distributed, "WAIT_S", 0.0)


def shared(count, trials=40, sampler="surrogate", **options):
    store, seen = MemoryStore(), []
    machines = Machines(store, count, **options)
    request = TuneRequest(trials=trials, sampler=sampler, spread=8)
    result, runner, _ = run(request, store, helpers=machines,
                            on_trial=lambda trial, _best: seen.append(trial.number))  # fmt: skip
    return result, runner, machines, seen


@pytest.mark.parametrize(
    ("sampler", "loses"), [("surrogate", ()), ("tpe", (4, 5, 9)), ("random", (4, 5, 9))]
)
def test_the_budget_is_spent_exactly_and_nothing_is_timed_twice(sampler, loses):
    result, runner, machines, seen = shared(3, sampler=sampler, loses=loses)
    timed = runner.hashes + machines.runner.hashes
    assert len(timed) == len(set(timed)) == 40 and result.complete
    assert [trial.number for trial in result.trials] == seen == list(range(40))
    assert len(machines.runner.hashes) > 2 * len(runner.hashes)
    assert machines.most_out == EACH * machines.count
    assert all(candidate.control and candidate.best_s for candidate in machines.asked)


def test_a_search_that_nobody_helps_tries_what_it_tries_alone():
    result, *_ = shared(0)
    alone, *_ = run(TuneRequest(trials=40))
    assert result.trials == alone.trials


def test_what_a_slower_machine_finds_is_the_time_to_beat_and_never_the_control():
    """Its speed factor is as usual there, so its trials count as steady."""
    result, _, machines, _ = shared(6, factor=1.4)
    theirs = {trial.schedule.hash for trial in result.trials if trial.speed_factor == 1.4}
    controls = {repr(candidate.control["steps"]) for candidate in machines.asked}
    told = {repr(list(t.schedule.to_json())) for t in result.trials if t.schedule.hash in theirs}
    assert theirs and not controls & told
    best_s = min(trial.measurement.time_us for trial in result.trials if trial.measurement) / 1e6
    assert machines.asked[-1].best_s == pytest.approx(best_s, rel=1 - WORTH)


def test_a_shared_search_goes_on_from_what_is_stored():
    store = MemoryStore()
    run(TuneRequest(trials=40, spread=8), store, helpers=Machines(store, 3),
        should_stop=lambda: len(store.trials()) > 20)  # fmt: skip
    before = len(store.trials())
    result, *_ = run(TuneRequest(trials=40, spread=8), store, helpers=Machines(store, 3))
    hashes = {trial.schedule.hash for trial in result.trials}
    assert 20 < before < len(result.trials) == len(hashes) == 40


SLOW = 2.5


class Disturbed(FakeRunner):
    """A machine that is `SLOW` times slower for the first trials, and says so where it can."""

    def __init__(self, trials: int) -> None:
        super().__init__()
        self.left = trials

    def trial(self, steps, best_s, control=None):
        now = SLOW if self.left > 0 else 1.0
        self.left -= 1
        if control is None:
            reply = super().trial(steps, None)
            return replace(reply, times=tuple(now * t for t in reply.times))
        true_s = self.seconds(Schedule.from_json(control["steps"]))
        known = control["seconds"] / true_s  # at what it calls factor 1
        reply = super().trial(steps, best_s and best_s / known, None)
        return replace(reply, times=tuple(now * t for t in reply.times), speed_factor=now / known)


def assert_right(trials) -> None:
    for trial in (one for one in trials if one.measurement is not None):
        true_us = 1e6 * FakeRunner.seconds(trial.schedule)
        low, high = trial.measurement.interval
        assert trial.measurement.time_us == pytest.approx(true_us, rel=0.03)
        assert low == pytest.approx(high) == pytest.approx(trial.measurement.gflops)
        factor = trial.speed_factor or 1.0
        assert trial.samples[0] / factor == pytest.approx(true_us / 1e6, rel=0.03)


@pytest.mark.parametrize("disturbed", [1, 3, 8, 20])
def test_trials_are_corrected_once_the_machine_was_undisturbed(disturbed: int) -> None:
    """Where it was in no trial, the finals correct them."""
    seen = []
    result, _, store = run(TuneRequest(trials=20), runner=Disturbed(disturbed),
                           on_trial=lambda _, best: seen.append(best))  # fmt: skip
    assert_right(result.trials)
    assert store.trials() == list(result.trials)
    fastest = min(1e6 * FakeRunner.seconds(trial.schedule) for trial in result.trials)
    assert disturbed == 20 or seen[-1].measurement.time_us == pytest.approx(fastest, rel=0.03)


def test_a_search_that_goes_on_inherits_no_wrong_scale() -> None:
    store, told = MemoryStore(), []
    with pytest.raises(KeyboardInterrupt):
        run(TuneRequest(trials=12), store, Disturbed(12), on_phase=interrupt)
    first, true_s = store.trials()[0], FakeRunner.seconds(store.trials()[0].schedule)
    assert first.measurement.time_us == pytest.approx(SLOW * 1e6 * true_s)
    result, *_ = run(TuneRequest(trials=20), store, Disturbed(0),
                     on_trial=lambda _, best: told.append(best))  # fmt: skip
    assert_right(result.trials)
    assert_right(told[3:])
    assert store.trials() == list(result.trials)


def interrupt(phase: SearchPhase) -> None:
    if phase.name == "finals":
        raise KeyboardInterrupt


class Far(Machines):
    """Undisturbed machines, which tell times by what they are told of the control."""

    def reply(self, steps, _best_s, control):
        known = control["seconds"] / FakeRunner.seconds(Schedule.from_json(control["steps"]))
        reply = self.runner.trial(steps, None)
        return replace(reply, speed_factor=1 / known)


def test_what_was_out_when_the_scale_changed_is_corrected_too() -> None:
    store = MemoryStore()
    request = TuneRequest(trials=60, spread=8)
    result, *_ = run(request, store, Disturbed(1), helpers=Far(store, 2))
    assert len(result.trials) == 60
    assert_right(result.trials)
    assert store.trials() == list(result.trials)
