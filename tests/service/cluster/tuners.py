"""Searches for the workers of a test's cluster; the seed of a request chooses one."""

import os
import time
from dataclasses import replace
from pathlib import Path

from tests.search.engine.fakes import FakeRunner
from tests.service import fakes
from tilewise.kernels.problem import Matmul
from tilewise.search.engine import distributed
from tilewise.search.engine import tune as engine
from tilewise.search.model.prior import direct_schedules

STEADY, HANGING, SPREAD = range(3)

LOG = "TEST_CLUSTER_LOG"  # the file with a line for each trial that the service acknowledged
TRIAL_S = "TEST_CLUSTER_TRIAL_S"


def tune(problem, target, request, store, **hooks):
    search = (steady, hanging, spread)[request.seed]
    return search(problem, target, request, store, **hooks)


def trial_of(problem, target, number):
    """A trial that the service believes: its schedule is legal for the problem."""
    if isinstance(problem, Matmul):
        return fakes.trial_of(problem, number, gflops=10.0 + number)
    made = fakes.trial(number, gflops=10.0 + number, flops=problem.flops)
    return replace(made, schedule=direct_schedules(problem, target, number + 1)[-1])


def steady(problem, target, request, store, *, should_stop=None, before_final=None, **_hooks):
    """Trials in order that take some time, each noted once it is acknowledged."""
    done = {trial.number for trial in store.trials()}
    for number in sorted(set(range(request.trials)) - done):
        if should_stop is not None and should_stop():
            break
        time.sleep(float(os.environ.get(TRIAL_S, "0.05")))
        store.add(trial_of(problem, target, number))
        note(f"{problem.canonical} {number}")
    return fakes.tune(problem, target, request, store, before_final=before_final)


def hanging(problem, target, request, store, **_hooks):
    """One trial, and then one that does not end, in a process of its own."""
    store.add(trial_of(problem, target, 0))
    note(f"{problem.canonical} hangs in {os.getpid()}")
    while True:
        pass


class SlowRunner(FakeRunner):
    """Takes some time for a trial, and notes which process has timed which schedule."""

    def __init__(self, problem, *_):
        super().__init__()
        self.name, self.trial_s = problem.canonical, float(os.environ.get(TRIAL_S, "0.05"))

    def trial(self, steps, best_s, control=None):
        time.sleep(self.trial_s)
        reply = super().trial(steps, best_s, control)
        note(f"{self.name} {self.hashes[-1]} {os.getpid()}")
        return reply


def spread(problem, target, request, store, **hooks):
    """The real search on timings that depend on the schedule alone, and take some time."""
    distributed.LATE_S = 2.0
    return engine.tune(problem, target, request, store, make_runner=SlowRunner, **hooks)


def run_worker(problem, target, request, leader):
    return distributed.run_worker(problem, target, request, leader, make_runner=SlowRunner)


def note(line: str) -> None:
    with Path(os.environ[LOG]).open("a") as file:  # a short line is written whole
        file.write(line + "\n")
