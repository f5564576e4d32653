"""One trial in a runner's child: when it is given up, by which pace, and beside which control."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.search.timing.test_measure import Clocks
from tilewise.search.runner.child import trial as module
from tilewise.search.runner.child.trial import BEHIND, CLEARLY_SLOWER, FIRST_RUN, trial
from tilewise.search.timing.measure import LEAST_SAMPLES
from tilewise.search.timing.samples import Run

BEST_S = 5e-3
LIMIT_S = FIRST_RUN * CLEARLY_SLOWER * BEST_S  # of the run that is checked


class FakeSession:
    """Schedules that are the seconds that they take, at the machine's present pace."""

    target = SimpleNamespace(threads=1)
    cache = "hot"

    def __init__(self, clocks: Clocks) -> None:
        self.clocks, self.now = clocks, 1.0
        self.pace, self.control = 1.0, None
        self.called: list[float] = []

    def call(self, seconds: float) -> Run:
        def run(repeat: int) -> None:
            self.called.append(seconds)
            self.clocks.run_of(seconds * self.now)(repeat)

        return run

    def check(self, run: Run, _steps: Any) -> tuple[float, float]:
        run(1)
        return 0.0, 1.0

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
def test_a_long_run_that_is_hopeless_when_it_is_checked_is_not_run_again(
    session: FakeSession, times: float, stopped: bool
) -> None:
    reply = trial(session, times * LIMIT_S, BEST_S)
    assert reply.pruned, "in the end either is"
    assert (len(session.called) == 1) == stopped
    assert reply.times[0] == pytest.approx(times * LIMIT_S)


def test_what_is_hopeless_is_so_at_the_pace_that_a_control_told_last(session: FakeSession) -> None:
    session.now = 1.5
    first = trial(session, BEST_S, BEST_S, control(BEST_S))
    assert first.pace == session.pace == pytest.approx(1.5)
    session.called.clear()
    trial(session, 0.99 * LIMIT_S, BEST_S, control(BEST_S))
    assert len(session.called) > 1
    session.called.clear()
    late = trial(session, 1.01 * LIMIT_S, BEST_S, control(BEST_S))
    assert late.pruned and session.called == [1.01 * LIMIT_S]
    assert late.pace == pytest.approx(1.5), "as far as anybody knows"
    trial(session, BEST_S, None)
    assert session.pace == pytest.approx(1.5), "until another control tells another"


def test_who_is_behind_gets_fewer_samples_than_who_may_be_the_best(session: FakeSession) -> None:
    behind = trial(session, 1.01 * BEHIND * BEST_S, BEST_S)
    near = trial(session, 0.99 * BEHIND * BEST_S, BEST_S)
    assert not behind.pruned and not near.pruned
    assert len(behind.times) < LEAST_SAMPLES <= len(near.times)
