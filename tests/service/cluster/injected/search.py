"""The real search, over candidates that misbehave."""

import os
import time
from typing import Any

import pytest

from tests.search.engine.faults import propose_rows
from tests.search.registers import register_of
from tests.service.cluster import tuners
from tests.service.cluster.injected import faults
from tilewise.kernels.schedule import Schedule
from tilewise.search.engine import tune as engine
from tilewise.search.records import TuneResult
from tilewise.search.runner.protocol import CandidateFailureError, Message
from tilewise.search.runner.runner import Runner, RunnerLimits

CHILD = "tests.service.cluster.injected.child"
HANGING = (faults.LOOP_IN_CODE_GENERATION, faults.LOOP_AT_RUN_TIME)
PATIENT = RunnerLimits(trial_s=120.0, setup_s=120.0, memory_bytes=900 << 20)
BRIEF = RunnerLimits(trial_s=1.0, setup_s=120.0, memory_bytes=PATIENT.memory_bytes)


class Injected(Runner):
    """A runner that waits briefly for the loops alone, and notes when each fault was told."""

    ahead = 0  # all is compiled where it is timed, so that the limit of a loop is its own

    def trial(self, steps: list[Any], best_s: float | None, control: Message | None = None) -> Any:
        rows = register_of(Schedule.from_json(steps)).rows
        self.limits = BRIEF if rows in HANGING else PATIENT
        try:
            return super().trial(steps, best_s, control)
        except CandidateFailureError:
            tuners.note(f"injected failed {rows} {time.monotonic()}")
            raise


def tune(problem, target, request, store, **hooks) -> TuneResult:
    """`tilewise.search.engine.tune.tune`, with the tiles of `faults.ROWS`, in that order."""
    tuners.note(f"injected run {os.getpid()} {os.getppid()}")
    with pytest.MonkeyPatch.context() as patch:
        propose_rows(patch, problem, list(faults.ROWS))
        return engine.tune(
            problem,
            target,
            request,
            store,
            make_runner=lambda *_: Injected(problem, target.canonical, child=CHILD),
            **hooks,
        )
