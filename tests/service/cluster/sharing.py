"""A search on simulated timings for several workers; what each has timed is noted."""

import os
import time

from tests.search.engine.fakes import FakeRunner
from tests.service.cluster import tuners
from tilewise.search.engine import distributed
from tilewise.search.engine import tune as engine
from tilewise.search.records import TuneResult

distributed.LATE_S = 2.0


class SlowRunner(FakeRunner):
    """Takes as long as it is told, and notes which process has timed which schedule."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.trial_s = name, float(os.environ.get(tuners.TRIAL_S, "0.05"))

    def trial(self, steps, best_s, control=None):
        time.sleep(self.trial_s)
        reply = super().trial(steps, best_s, control)
        tuners.note(f"{self.name} {self.hashes[-1]} {os.getpid()}")
        return reply


def lead(problem, target, request, store, **hooks) -> TuneResult:
    name = problem.canonical
    return engine.tune(
        problem, target, request, store, make_runner=lambda *_: SlowRunner(name), **hooks
    )


def run_worker(problem, target, request, leader) -> int:
    name = problem.canonical
    return distributed.run_worker(
        problem, target, request, leader, make_runner=lambda *_: SlowRunner(name)
    )
