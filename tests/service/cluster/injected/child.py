"""A runner's child whose candidates have the faults of `faults`, and which notes its trials."""

import ctypes
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.search.registers import register_of
from tests.service.cluster import tuners
from tests.service.cluster.injected import faults
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.search.runner.child import __main__ as child
from tilewise.search.runner.child import lowered

PIECE, ALL = 64 << 20, 50 << 30
lower, trial = lowered.lower, child.trial


def lower_or_loop(problem: Any, schedule: Schedule, target: Any) -> Any:
    """Code of a schedule, unless its generation has no end."""
    while loop_nest(problem, schedule).tile.rows == faults.LOOP_IN_CODE_GENERATION:
        pass
    return lower(problem, schedule, target)


def noted_trial(session: Any, steps: Any, *others: Any, **named: Any) -> Any:
    rows = register_of(Schedule.from_json(steps)).rows
    tuners.note(f"injected began {rows} {time.monotonic()}")
    return trial(session, steps, *others, **named)


@dataclass(frozen=True)
class Misbehaving:
    """A call, and then what its register tile says."""

    call: Any
    rows: int
    result: Any

    @property
    def scratch_bytes(self) -> dict[str, int]:
        return self.call.scratch_bytes

    def __call__(self, repeat: int = 1) -> None:
        self.call(repeat)
        match self.rows:
            case faults.SEGFAULT:
                ctypes.string_at(0)
            case faults.LOOP_AT_RUN_TIME:
                while True:
                    pass
            case faults.PIECES:
                hoard = [np.ones(PIECE, np.uint8) for _ in range(ALL // PIECE)]
                assert not hoard, "50 GiB are there"
            case faults.WRONG:
                self.result[0, 0] += 1
            case faults.NAN:
                self.result[0, 0] = np.nan
            case faults.AT_ONCE:
                np.ones(ALL, np.uint8)


class InjectedSession(child.Session):
    """A session whose candidates misbehave while they run."""

    def call(self, steps: Any) -> Any:
        rows = register_of(Schedule.from_json(steps)).rows
        return Misbehaving(super().call(steps), rows, self.operands["C"])


if __name__ == "__main__":
    lowered.lower, child.trial, child.Session = lower_or_loop, noted_trial, InjectedSession
    child.main()
