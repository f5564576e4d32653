"""What a search makes of its trials: the control, the usual pace, and where it goes on."""

from typing import Any

import pytest

from tests.search.engine.fakes import SQUARE, TARGET
from tests.search.replies import trial_reply
from tilewise.search.engine.exploration import Exploration
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.records import TrialRecord, TuneRequest
from tilewise.search.space.space import Space
from tilewise.search.store import MemoryStore
from tilewise.search.timing.samples import summarise

SPACE = Space(SQUARE, TARGET)
MODEL = AnalyticalModel.shipped(SPACE)
POINTS = prior_points(MODEL, 12)


def trial(number: int, seconds: float, state: str = "timed", pace: float | None = 1.0):
    point = POINTS[number]
    return TrialRecord(
        number,
        SPACE.schedule(point),
        point,
        state,
        "prior",
        measurement=summarise([seconds] * 6, SQUARE.flops),
        pace=pace,
    )


def explored(*trials: TrialRecord) -> Exploration:
    """The search that a store with these trials goes on with."""
    store = MemoryStore()
    for one in trials:
        store.add(one)
    return Exploration(MODEL, TuneRequest(trials=40), store, [])


class Answering:
    """A runner whose trials take what they are told to; a control never runs."""

    ahead = 0

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)
        self.controls: list[Any] = []

    def prepare(self, steps: list[Any]) -> None: ...

    def trial(self, steps: list[Any], best_s: float | None, control: Any = None) -> Any:
        self.controls.append(control and control["seconds"])
        return trial_reply([self.seconds.pop(0)] * 6, pace=None)


def test_the_control_of_a_resumed_search_is_the_first_about_as_fast_as_the_luckiest() -> None:
    search = explored(
        trial(0, 2.0), trial(1, 1.05, "pruned"), trial(2, 1.04), trial(3, 1.0), trial(4, 1.02)
    )
    assert search.best is not None and search.control is not None
    assert (search.best.number, search.control.number) == (3, 2)


def test_a_control_that_does_not_run_any_more_makes_way_for_the_next_to_be_the_best() -> None:
    search, runner = explored(trial(0, 1e-3)), Answering(2e-3, 3e-3, 0.5e-3, 0.4e-3)
    for _, proposal in zip(range(4), search.ahead(runner), strict=False):
        search.run(runner, proposal)
    assert runner.controls == [pytest.approx(1e-3), None, None, pytest.approx(0.5e-3)]


def test_the_usual_pace_is_that_of_trials_that_were_timed_to_the_end() -> None:
    stopped = trial(2, 3.0, "pruned", pace=1.7)
    search = explored(trial(0, 1.0, pace=None), trial(1, 1.0), stopped, trial(3, 1.1, pace=1.1))
    assert search.paces == [1.0, 1.1]
