"""The control beside each trial: who is it, and what paces say."""

import pytest

from tests.search.engine.fakes import Confused, FakeRunner, Paced, run
from tilewise.search.records import TuneRequest
from tilewise.search.store import MemoryStore
from tilewise.search.timing.speed_factor import WORTH


def test_each_trial_has_about_the_best_before_it_for_a_control() -> None:
    result, runner, _ = run(TuneRequest(trials=30), runner=Paced())
    assert runner.controls[0] is None
    best = result.trials[0]
    for trial, control in zip(result.trials[1:], runner.controls[1:], strict=True):
        assert control["steps"] == list(best.schedule.to_json())
        assert control["seconds"] == pytest.approx(FakeRunner.seconds(best.schedule))
        is_usual = trial.state == "timed" and trial.pace == 1.0
        if is_usual and trial.measurement.time_us < WORTH * best.measurement.time_us:
            best = trial
    for trial in result.trials:
        assert trial.measurement.time_us == pytest.approx(1e6 * FakeRunner.seconds(trial.schedule))
        assert trial.samples[0] == pytest.approx(
            FakeRunner.seconds(trial.schedule) * (trial.pace or 1.0)
        )
    assert {trial.pace for trial in result.trials} == {None, 1.0, 1.5}


def test_what_is_behind_is_told_by_the_fastest_at_a_usual_pace() -> None:
    result, runner, _ = run(TuneRequest(trials=30, sampler="local"), runner=Confused())
    assert runner.to_beat[0] is None
    hasty = 0
    for number, to_beat in enumerate(runner.to_beat[1:], 1):
        before = [t for t in result.trials[:number] if t.state == "timed"]
        steady = min(t.measurement.time_us for t in before if t.pace != 1.5)
        assert to_beat == pytest.approx(steady / 1e6)
        hasty += min(t.measurement.time_us for t in before) < 0.9 * steady
    assert hasty > 1, "some were told too fast"


def test_the_paces_of_a_search_go_into_its_interval() -> None:
    request = TuneRequest(trials=30, sampler="local")  # which paces do not lead elsewhere
    calm, *_ = run(request)
    paced, *_ = run(request, runner=Paced())
    known, *_ = run(request, MemoryStore(paces=[[1.0, 1.0, 1.5, 1.5]] * 9))
    for found in (paced, known):
        assert found.best.measurement.gflops == calm.best.measurement.gflops
        assert found.best.measurement.interval[0] < calm.best.measurement.interval[0] / 1.4
