"""The control of a search: what a machine that changes its pace does to a trial."""

import time

import pytest

from search.control import CALM_S, Control
from search.measure import Samples


class Machine:
    """Runs that take so long at a pace of 1, and longer at another."""

    def __init__(self) -> None:
        self.pace = 1.0
        self.runs = 0

    def run_of(self, seconds: float):
        def run(repeat: int) -> None:
            self.runs += 1
            end = time.thread_time() + seconds * repeat * self.pace
            while time.thread_time() < end:
                pass

        return run


@pytest.fixture
def machine() -> Machine:
    return Machine()


def timed(run) -> Samples:
    samples = Samples(1)
    while len(samples.times) < 3:
        samples.take(run)
    return samples


def test_a_candidate_of_a_slow_second_is_told_at_the_usual_pace(machine: Machine) -> None:
    control, best, other = Control(), machine.run_of(0.002), machine.run_of(0.0022)
    control.learn(best, 0.002, 1)
    machine.pace = 1.8
    samples = timed(other)
    pace = control.pace(other, samples, min(samples.times))
    assert 1.6 < pace < 2.0
    assert len(samples.times) > 3, "what was timed beside the control is kept"


def test_on_a_calm_machine_nothing_is_corrected_and_the_control_runs_once(machine: Machine) -> None:
    control, best, other = Control(), machine.run_of(0.002), machine.run_of(0.0025)
    control.learn(best, 0.002, 1)
    samples = timed(other)
    before = machine.runs
    assert control.pace(other, samples, 0.0025) == control.pace(other, samples, 0.0025) == 1.0
    assert machine.runs == before + 1, f"it is believed for {CALM_S} s"


def test_without_a_control_and_far_behind_it_nothing_is_run(machine: Machine) -> None:
    control, run = Control(), machine.run_of(0.001)
    assert control.pace(run, Samples(1), 0.001) == 1.0
    control.learn(run, 0.001, 1)
    assert control.pace(run, Samples(1), 0.004) == 1.0
    assert machine.runs == 0


def test_the_control_is_the_fastest() -> None:
    control, one, other = Control(), (lambda _: None), (lambda _: None)
    control.learn(one, 2.0, 4)
    control.learn(other, 3.0, 1)
    assert (control.run, control.seconds, control.repeat) == (one, 2.0, 4)
