"""Speeds are absolute: a disturbed first trial does not set the scale for good."""

from dataclasses import replace

import pytest

from tests.search.engine.fakes import FakeRunner, run
from tests.search.engine.test_together import Machines
from tilewise.kernels.schedule import Schedule
from tilewise.search.engine import distributed
from tilewise.search.progress import SearchPhase
from tilewise.search.records import TuneRequest
from tilewise.search.store import MemoryStore

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
        known = control["seconds"] / true_s  # at what it calls pace 1
        reply = super().trial(steps, best_s and best_s / known, None)
        return replace(reply, times=tuple(now * t for t in reply.times), pace=now / known)


def assert_right(trials) -> None:
    for trial in trials:
        if trial.measurement is None:
            continue
        true_us = 1e6 * FakeRunner.seconds(trial.schedule)
        low, high = trial.measurement.interval
        assert trial.measurement.time_us == pytest.approx(true_us, rel=0.03)
        assert low == pytest.approx(high) == pytest.approx(trial.measurement.gflops)
        assert trial.samples[0] / (trial.pace or 1.0) == pytest.approx(true_us / 1e6, rel=0.03)


@pytest.mark.parametrize("disturbed", [1, 3, 8])
def test_trials_are_corrected_once_the_machine_was_undisturbed(disturbed: int) -> None:
    seen = []
    result, _, store = run(
        TuneRequest(trials=20),
        runner=Disturbed(disturbed),
        on_trial=lambda trial, best: seen.append((trial, best)),
    )
    assert_right(result.trials)
    assert store.trials() == list(result.trials)
    fastest = min(1e6 * FakeRunner.seconds(trial.schedule) for trial in result.trials)
    assert seen[-1][1].measurement.time_us == pytest.approx(fastest, rel=0.03)


def test_finals_correct_a_search_that_was_disturbed_to_its_last_trial() -> None:
    result, _, store = run(TuneRequest(trials=12), runner=Disturbed(12))
    assert_right(result.trials)
    assert store.trials() == list(result.trials)


def test_a_search_that_goes_on_inherits_no_wrong_scale() -> None:
    store, told = MemoryStore(), []
    with pytest.raises(KeyboardInterrupt):
        run(TuneRequest(trials=12), store, Disturbed(12), on_phase=interrupt)
    assert store.trials()[0].measurement.time_us == pytest.approx(
        SLOW * 1e6 * FakeRunner.seconds(store.trials()[0].schedule)
    )
    result, *_ = run(
        TuneRequest(trials=20), store, Disturbed(0), on_trial=lambda _, best: told.append(best)
    )
    assert_right(result.trials)
    assert_right(told[3:])
    assert store.trials() == list(result.trials)


def interrupt(phase: SearchPhase) -> None:
    if phase.name == "finals":
        raise KeyboardInterrupt


class Far(Machines):
    """Undisturbed machines, which tell times by what they are told of the control."""

    def reply(self, candidate):
        control = candidate.control
        known = control["seconds"] / FakeRunner.seconds(Schedule.from_json(control["steps"]))
        reply = self.runner.trial(candidate.steps, None)
        return replace(reply, pace=1 / known)


def test_what_was_out_when_the_scale_changed_is_corrected_too(monkeypatch) -> None:
    monkeypatch.setattr(distributed, "LOOK_S", 0.0)
    monkeypatch.setattr(distributed, "WAIT_S", 0.0)
    store = MemoryStore()
    request = TuneRequest(trials=60, spread=8)
    result, *_ = run(request, store, Disturbed(1), helpers=Far(store, 2))
    assert len(result.trials) == 60
    assert_right(result.trials)
    assert store.trials() == list(result.trials)
