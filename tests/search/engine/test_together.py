"""A search that is shared: every candidate is tried once, on one machine or another."""

from dataclasses import replace

import pytest

from tests.search.engine.fakes import SQUARE, FakeRunner, run
from tilewise.search.engine import distributed
from tilewise.search.engine.distributed import EACH
from tilewise.search.engine.exploration import attempt
from tilewise.search.helpers import Exchanged, Helped
from tilewise.search.records import TuneRequest
from tilewise.search.store import MemoryStore
from tilewise.search.timing.speed_factor import WORTH


class Machines:
    """Helpers in memory: at each exchange each tries one candidate of those that are out.

    Args:
        store: of the leader.
        count: how many there are.
        pace: of all of them.
        loses: numbers of exchanges at which a candidate that one has is lost.
    """

    def __init__(self, store, count, pace=1.0, loses=()):
        self.store, self.count, self.pace, self.loses = store, count, pace, set(loses)
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
        trial = attempt(lambda: self.reply(candidate), candidate, SQUARE.flops)
        trials = self.store.trials()
        stored = replace(trial, number=trials[-1].number + 1 if trials else 0, takes_over=False)
        self.store.add(stored)
        return Helped(number, stored, "there")

    def reply(self, candidate):
        reply = self.runner.trial(candidate.steps, candidate.best_s, candidate.control)
        times = tuple(self.pace * seconds for seconds in reply.times)
        return replace(reply, times=times, pace=self.pace)


@pytest.fixture(autouse=True)
def looks(monkeypatch):
    monkeypatch.setattr(distributed, "LOOK_S", 0.0)
    monkeypatch.setattr(distributed, "WAIT_S", 0.0)


def shared(count, trials=40, sampler="surrogate", **options):
    store = MemoryStore()
    machines = Machines(store, count, **options)
    seen = []
    result, runner, _ = run(
        TuneRequest(trials=trials, sampler=sampler, spread=8),
        store,
        helpers=machines,
        on_trial=lambda trial, _best: seen.append(trial.number),
    )
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


def test_a_search_that_nobody_helps_tries_what_it_tries_alone():
    result, *_ = shared(0)
    alone, *_ = run(TuneRequest(trials=40))
    assert result.trials == alone.trials


def test_nothing_goes_out_before_there_is_a_control():
    _, _, machines, _ = shared(2)
    assert all(candidate.control and candidate.best_s for candidate in machines.asked)


def test_what_a_slower_machine_finds_is_the_time_to_beat_and_never_the_control():
    """Its pace is as usual there, so its trials count as steady."""
    result, _, machines, _ = shared(6, pace=1.4)
    theirs = {trial.schedule.hash for trial in result.trials if trial.pace == 1.4}
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
