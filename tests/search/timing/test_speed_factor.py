"""The machine's speed factor, measured by a control: what a slow second does to a trial."""

import random
from statistics import median

import pytest

from tilewise.search.timing import samples
from tilewise.search.timing.measure import FEW_SAMPLES
from tilewise.search.timing.samples import VERY_LONG_RUN_S, Run, Samples
from tilewise.search.timing.speed_factor import (
    LEAST_SHORT_ROUNDS,
    MOST_SHORT_ROUNDS,
    Bounds,
    Control,
    ControlledTiming,
    measure_with_control,
    undisturbed_factor,
)


class Machine:
    """Runs that take so long at factor 1, on clocks that only they move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.runs, self.noise = 0.0, 0, random.Random(1)
        self.factors = [1.0]  # of the runs to come; the last goes on
        self.spread = 0.002
        monkeypatch.setattr(samples.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(samples.time, "thread_time", lambda: self.now)

    def run_of(self, seconds: float) -> Run:
        def run(repeat: int) -> None:
            now = self.factors.pop(0) if len(self.factors) > 1 else self.factors[0]
            self.now += seconds * repeat * now * self.noise.lognormvariate(0, self.spread)
            self.runs += 1

        return run

    def beside(self, best_s: float, seconds: float) -> ControlledTiming:
        """A candidate of `seconds` beside a control of `best_s`, one run in a sample."""
        control, run = Control(self.run_of(best_s), best_s, 1), self.run_of(seconds)
        samples = Samples(1)
        if seconds >= VERY_LONG_RUN_S:
            samples.take(run)
        limits = Bounds(1.25 * best_s, 1.05 * best_s)
        return measure_with_control(control, run, samples, limits, 0.08)


def seconds(found: ControlledTiming) -> float:
    """The candidate's time at factor 1."""
    return median(found.samples.times) / found.speed_factor


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize("best_s", [0.5e-3, 5e-3, 20e-3])
@pytest.mark.parametrize("now", [1.0, 1.7, 0.6])
def test_a_candidate_is_told_at_the_speed_of_the_control(machine, best_s, now) -> None:
    machine.factors = [now]
    found = machine.beside(best_s, 1.03 * best_s)
    assert found.speed_factor == pytest.approx(now, rel=0.02)
    assert seconds(found) == pytest.approx(1.03 * best_s, rel=0.01)
    assert not found.stopped


@pytest.mark.parametrize("best_s", [0.5e-3, 5e-3, 20e-3])
def test_a_machine_that_slows_down_meanwhile_condemns_nobody(machine, best_s) -> None:
    for before in range(1, 5):
        machine.factors = [1.0] * before + [1.6]
        found = machine.beside(best_s, 0.99 * best_s)
        assert machine.factors == [1.6] and not found.stopped
        assert seconds(found) == pytest.approx(0.99 * best_s, rel=0.02)


@pytest.mark.parametrize("best_s", [0.5e-3, 5e-3, 20e-3])
def test_one_slow_sample_of_the_control_makes_no_winner(machine: Machine, best_s: float) -> None:
    machine.factors = [1.0, 1.5, 1.0]
    found = machine.beside(best_s, 1.02 * best_s)
    assert seconds(found) == pytest.approx(1.02 * best_s, rel=0.02)


@pytest.mark.parametrize("best_s", [0.5e-3, 5e-3, 20e-3])
def test_hundreds_of_equals_do_not_make_each_other_faster(machine: Machine, best_s: float) -> None:
    machine.spread = 0.03
    told, control_s = [], best_s
    for _ in range(400):
        control = Control(machine.run_of(best_s), control_s, 1)
        limits = Bounds(1.25 * control_s, 1.05 * control_s)
        found = measure_with_control(control, machine.run_of(best_s), Samples(1), limits, 0.08)
        told.append(seconds(found))
        if found.takes_over:
            control_s = told[-1]
    assert min(told) < 0.97 * best_s, "some were lucky"
    assert median(told[-50:]) == pytest.approx(best_s, rel=0.03)


def test_what_takes_over_was_timed_twice(machine: Machine) -> None:
    found = machine.beside(0.5e-3, 0.4e-3)
    assert found.takes_over and len(found.samples.times) >= 2 * LEAST_SHORT_ROUNDS
    assert seconds(found) == pytest.approx(0.4e-3, rel=0.01)
    machine.factors = [1.0, 1.5] * 2 + [1.5, 1.0] + [1.0, 1.5] * 2 + [1.0]
    lucky = machine.beside(0.5e-3, 0.52e-3)
    assert not lucky.takes_over
    assert seconds(lucky) == pytest.approx(0.52e-3, rel=0.02)


def test_the_slow_are_given_up_after_a_round_or_two(machine: Machine) -> None:
    assert machine.beside(0.5e-3, 1.5e-3).stopped
    assert machine.runs == 4
    found = machine.beside(0.5e-3, 0.7e-3)
    assert found.stopped and machine.runs == 4 + 8


def test_a_run_far_behind_needs_two_rounds_and_one_near_the_best_more(machine: Machine) -> None:
    behind = machine.beside(0.5e-3, 0.58e-3)
    assert (len(behind.samples.times), behind.stopped, machine.runs) == (2, False, 8)
    near = machine.beside(0.5e-3, 0.51e-3)
    assert len(near.samples.times) == LEAST_SHORT_ROUNDS
    machine.spread = 0.1
    near = machine.beside(0.5e-3, 0.51e-3)
    assert LEAST_SHORT_ROUNDS < len(near.samples.times) <= MOST_SHORT_ROUNDS


def test_short_runs_are_told_by_those_that_nobody_disturbed(machine: Machine) -> None:
    """Of either side half of the runs meet somebody, who takes a tenth or two fifths."""
    draws = random.Random(0)
    right = 0
    for _ in range(100):
        machine.factors = [draws.choice([1.0, 1.0, 1.1, 1.4]) for _ in range(60)] + [1.0]
        found = machine.beside(0.5e-3, 0.52e-3)
        right += abs(seconds(found) / 0.52e-3 - 1) < 0.01
    assert right >= 90


def test_runs_between_do_not_hang_on_a_single_lucky_one(machine: Machine) -> None:
    """One run of the candidate is a tenth shorter: what the fastest fifth alone would tell."""
    machine.factors = [1.0] * 4 + [0.9] + [1.0]
    found = machine.beside(5e-3, 5.1e-3)
    assert seconds(found) == pytest.approx(5.1e-3, rel=0.03)


def test_very_long_runs_count_the_run_of_their_check_and_are_compared_twice(machine) -> None:
    found = machine.beside(20e-3, 20.2e-3)
    assert machine.runs == 4 and len(found.samples.times) == 2
    machine.factors = [1.4, 1.0]  # the first run meets new memory
    found = machine.beside(1.0, 1.02)
    assert len(found.samples.times) == FEW_SAMPLES
    assert seconds(found) == pytest.approx(1.02, rel=0.02)


@pytest.mark.parametrize(("best_s", "every"), [(0.5e-3, 3), (5e-3, 3), (20e-3, 2)])
def test_who_was_preempted_makes_nobody_slower_or_faster(best_s, every, machine, monkeypatch):
    lost = [0.0]

    def run_of(seconds: float, phase: int) -> Run:
        run, calls = machine.run_of(seconds), [phase]

        def call(repeat: int) -> None:
            run(repeat)
            calls[0] += 1
            if calls[0] % every == 0:  # others had the processor meanwhile
                machine.now, lost[0] = machine.now + best_s, lost[0] + best_s

        return call

    monkeypatch.setattr(samples.time, "thread_time", lambda: machine.now - lost[0])
    control, limits = Control(run_of(best_s, 0), best_s, 1), Bounds(1.25 * best_s, 1.05 * best_s)
    found = measure_with_control(control, run_of(1.02 * best_s, 1), Samples(1), limits, 0.08)
    assert found.samples.preempted > 0
    assert seconds(found) == pytest.approx(1.02 * best_s, rel=0.02)


def test_the_factor_is_that_of_undisturbed_moments() -> None:
    """Of a machine that is faster in a tenth of all moments or more, and in three at least."""
    assert undisturbed_factor([0.5] * 3 + [1.0] * 17) == 0.5
    assert undisturbed_factor([0.5] * 2 + [1.0] * 8) == 1.0
    assert undisturbed_factor([0.95] * 10) == 1.0, "no more than trials err"
    assert undisturbed_factor([2.0] * 10) == 1.0, "the control was not that lucky"
