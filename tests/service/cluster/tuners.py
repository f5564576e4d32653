"""Searches for the workers of a test's cluster; the seed of a request chooses one."""

import os
import time
from dataclasses import replace
from pathlib import Path

from tests.service import fakes
from tilewise.kernels.problem import Matmul
from tilewise.search.records import TuneResult

STEADY, HANGING, SPREAD = range(3)

LOG = "TEST_CLUSTER_LOG"
"""The file that has a line for each trial that the service has acknowledged."""

TRIAL_S = "TEST_CLUSTER_TRIAL_S"


def tune(problem, target, request, store, **hooks) -> TuneResult:
    search = (steady, hanging, spread)[request.seed]
    return search(problem, target, request, store, **hooks)


def trial_of(problem, target, number):
    """A trial that the service believes: its schedule is legal for the problem."""
    if isinstance(problem, Matmul):
        return fakes.trial_of(problem, number, gflops=10.0 + number)
    from tilewise.search.model.prior import direct_schedules

    made = fakes.trial(number, gflops=10.0 + number, flops=problem.flops)
    return replace(made, schedule=direct_schedules(problem, target, number + 1)[-1])


def steady(problem, target, request, store, *, should_stop=None, before_finals=None, **_hooks):
    """Trials in order that take some time, each noted once it is acknowledged."""
    done = {trial.number for trial in store.trials()}
    for number in sorted(set(range(request.trials)) - done):
        if should_stop is not None and should_stop():
            break
        time.sleep(float(os.environ.get(TRIAL_S, "0.05")))
        store.add(trial_of(problem, target, number))
        note(f"{problem.canonical} {number}")
    return fakes.tune(problem, target, request, store, before_finals=before_finals)


def hanging(problem, target, request, store, **_hooks):
    """One trial, and then one that does not end, in a process of its own."""
    store.add(trial_of(problem, target, 0))
    note(f"{problem.canonical} hangs in {os.getpid()}")
    while True:
        pass


def spread(problem, target, request, store, **hooks) -> TuneResult:
    """The real search on timings that depend on the schedule alone, and take some time."""
    from tests.service.cluster import sharing

    return sharing.lead(problem, target, request, store, **hooks)


def run_worker(problem, target, request, leader) -> int:
    from tests.service.cluster import sharing

    return sharing.run_worker(problem, target, request, leader)


def note(line: str) -> None:
    with Path(os.environ[LOG]).open("a") as file:  # a short line is written whole
        file.write(line + "\n")
