"""How long tests wait for a runner's processes: for all as long as a busy machine takes, but
for a candidate that hangs on purpose."""

from dataclasses import dataclass
from typing import Any

from tests.search.registers import register_of
from tests.search.runner.faulty_child import HANG
from tilewise.kernels.schedule import Schedule
from tilewise.search.runner.protocol import Message
from tilewise.search.runner.runner import Runner, RunnerLimits

HANGS_S = 2.0
LIMITS = RunnerLimits(trial_s=200.0, setup_s=250.0, memory_bytes=900 << 20)
BRIEF = RunnerLimits(trial_s=HANGS_S, setup_s=LIMITS.setup_s, memory_bytes=LIMITS.memory_bytes)


@dataclass
class Patient(Runner):
    """A runner that gives up soon on a candidate whose register tile says that it hangs."""

    limits: RunnerLimits | None = LIMITS

    def trial(self, steps: list[Any], best_s: float | None, control=None) -> Message:
        hangs = register_of(Schedule.from_json(steps)).rows == HANG
        self.limits = BRIEF if hangs else LIMITS
        return super().trial(steps, best_s, control)
