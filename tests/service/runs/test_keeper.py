"""A run needs nothing of a database beyond a `Keeper`."""

from contextlib import contextmanager

import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM
from tilewise.search.records import TuneRequest
from tilewise.search.store import MemoryStore
from tilewise.service.errors import LeaseLostError
from tilewise.service.runs.keeper import Order
from tilewise.service.workers.job_run import run_job


class MemoryKeeper:
    """Keeps a job in memory; `stops` says whether its run is told to stop."""

    def __init__(self, target, trials=4, stops=lambda: False, problem=PROBLEM):
        self.order = Order(1, problem, target, TuneRequest(trials=trials), 0.0)
        self.epoch, self.request_id = 1, ""
        self.trials = MemoryStore()
        self.is_held, self.is_released = True, False
        self.result, self.error, self.attempts, self.phases = None, None, (), []
        self._stops = stops

    helpers = None

    @contextmanager
    def beating(self):
        yield self._stops

    def note(self, phase):
        self.phases.append(phase.name)

    def done(self, result, best, attempts, machine):
        if self.is_held:
            self.result, self.attempts = result, attempts
        return self.is_held

    def failed(self, message):
        self.error = message
        return self.is_held

    def release(self):
        self.is_released = True


@pytest.fixture
def run(machine):
    def make(keeper, tuner=fakes.tune):
        return run_job(keeper, tuner=tuner, prover=fakes.prove, machine=machine)

    return make


def test_a_run_ends_with_what_it_found(run, machine):
    keeper = MemoryKeeper(machine.target)
    assert run(keeper).state == "done"
    assert [trial.number for trial in keeper.result.trials] == [0, 1, 2, 3]
    assert keeper.attempts and keeper.attempts[0].proof.ok
    assert keeper.phases[0] == "search" and keeper.phases[-1] == "finals"


def test_a_run_goes_on_from_the_trials_that_are_kept(run, machine):
    keeper = MemoryKeeper(machine.target)
    kept = fakes.trial(0, gflops=1.0)
    keeper.trials.add(kept)
    assert run(keeper).state == "done"
    assert keeper.trials.trials()[0] == kept and len(keeper.trials.trials()) == 4


def test_a_run_that_is_told_to_stop_tries_no_more(run, machine):
    keeper = MemoryKeeper(machine.target, stops=lambda: len(keeper.trials.trials()) == 2)
    run(keeper)
    assert len(keeper.trials.trials()) == 2


def test_a_run_whose_job_was_taken_at_its_end_is_interrupted(run, machine):
    keeper = MemoryKeeper(machine.target)
    keeper.is_held = False
    ended = run(keeper)
    assert ended.state == "interrupted" and keeper.result is None
    assert ended.message == "job 1 was cancelled or taken over"


def test_a_trial_that_is_refused_ends_the_run(run, machine):
    keeper = MemoryKeeper(machine.target)

    def refuse(_trial):
        raise LeaseLostError("another run has the job")

    keeper.trials.add = refuse
    assert run(keeper).state == "interrupted" and keeper.error is None


def test_a_bad_problem_fails_the_job_with_its_reason(run, machine):
    keeper = MemoryKeeper(machine.target, problem="matmul:m=0,n=1,k=1,dtype=f32")
    ended = run(keeper)
    assert ended.state == "failed" and ended.message == keeper.error and "m=0" in keeper.error


def test_an_interrupt_gives_the_job_back(run, machine):
    keeper = MemoryKeeper(machine.target)

    def interrupted(*_parts, **_hooks):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(keeper, interrupted)
    assert keeper.is_released
