"""The machine's pace, told by a control: what a slow second does to a trial."""

import random
from statistics import median

import pytest

from search import measure, pace
from search.measure import VERY_LONG_RUN_S, Run, Samples
from search.pace import MOST_TURNS, Control, Limits, Paced, measure_beside


class Machine:
    """Runs that take so long at pace 1, on clocks that only they move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.runs, self.noise = 0.0, 0, random.Random(1)
        self.paces = [1.0]  # of the runs to come; the last goes on
        for module in (measure, pace):
            monkeypatch.setattr(module.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(measure.time, "thread_time", lambda: self.now)

    def run_of(self, seconds: float) -> Run:
        def run(repeat: int) -> None:
            now = self.paces.pop(0) if len(self.paces) > 1 else self.paces[0]
            self.now += seconds * repeat * now * self.noise.lognormvariate(0, 0.002)
            self.runs += 1

        return run

    def beside(self, best_s: float, seconds: float) -> Paced:
        """A candidate of `seconds` beside a control of `best_s`, one run in a sample."""
        control, run = Control(self.run_of(best_s), best_s, 1), self.run_of(seconds)
        samples = Samples(1)
        if seconds >= VERY_LONG_RUN_S:
            samples.take(run)
        return measure_beside(control, run, samples, Limits(1.25 * best_s, 1.05 * best_s), 0.08)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize("best_s", [0.5e-3, 20e-3])
@pytest.mark.parametrize("now", [1.0, 1.7, 0.6])
def test_a_candidate_is_told_at_the_pace_of_the_control(
    machine: Machine, best_s: float, now: float
) -> None:
    machine.paces = [now]
    found = machine.beside(best_s, 1.03 * best_s)
    assert found.pace == pytest.approx(now, rel=0.02)
    assert median(found.samples.times) / found.pace == pytest.approx(1.03 * best_s, rel=0.01)
    assert not found.stopped


@pytest.mark.parametrize("best_s", [0.5e-3, 20e-3])
def test_a_machine_that_slows_down_meanwhile_condemns_nobody(
    machine: Machine, best_s: float
) -> None:
    machine.paces = [1.0] * 3 + [1.6]
    found = machine.beside(best_s, 0.99 * best_s)
    assert not found.stopped
    assert median(found.samples.times) / found.pace == pytest.approx(0.99 * best_s, rel=0.02)


def test_nor_does_a_fast_second_make_a_winner(machine: Machine) -> None:
    machine.paces = [1.0, 0.6, 0.6, 0.6, 1.0]
    found = machine.beside(0.5e-3, 0.55e-3)
    assert median(found.samples.times) / found.pace == pytest.approx(0.55e-3, rel=0.02)


def test_the_slow_are_given_up_after_two_or_three_turns(machine: Machine) -> None:
    assert machine.beside(0.5e-3, 1.5e-3).stopped
    assert machine.runs == 2
    found = machine.beside(0.5e-3, 0.7e-3)
    assert found.stopped and machine.runs == 2 + 3


def test_a_run_far_behind_needs_three_turns_and_one_near_the_best_more(machine: Machine) -> None:
    behind = machine.beside(0.5e-3, 0.58e-3)
    assert (len(behind.samples.times), behind.stopped, machine.runs) == (2, False, 3)
    near = machine.beside(0.5e-3, 0.51e-3)
    assert measure.LEAST_SAMPLES <= 2 * len(near.samples.times) <= MOST_TURNS


def test_very_long_runs_count_the_run_of_their_check(machine: Machine) -> None:
    found = machine.beside(20e-3, 20.2e-3)
    assert machine.runs == 3, "the control between two of its own"
    assert len(found.samples.times) == 2


def test_when_every_sample_is_preempted_there_is_a_number_all_the_same(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure.time, "thread_time", lambda: machine.now / 2)
    found = machine.beside(0.5e-3, 0.51e-3)
    assert found.samples.times == [found.samples.least_s] and found.pace == 1.0
    assert found.samples.rejected == MOST_TURNS // 2
