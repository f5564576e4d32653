"""How long a process waits for another, less the time in which either of them was frozen.

A stopped process (SIGSTOP, a frozen container, a debugger, a paused machine) finds all its
deadlines passed when it goes on, though the one that it waits for had no time at all.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MOST_STEP_S = 1.0
"""Of one look to the next no more counts: who looks every few hundredths of a second and finds
more has not run. That much may be load."""
_STOPPED = "Tt"  # by a signal, by a debugger


@dataclass
class Patience:
    """A limit to a wait, for a waiter that looks often.

    Attributes:
        seconds: of them both running, after which it is over.
        clock: seconds that only grow.
        spent_s: of the limit so far.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    spent_s: float = field(default=0.0, init=False)
    _looked_at: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._looked_at = self.clock()

    def is_over(self, pid: int) -> bool:
        """Whether the process `pid` has had its time; asked at each look."""
        moment = self.clock()
        step, self._looked_at = moment - self._looked_at, moment
        if not is_stopped(pid):
            self.spent_s += min(step, MOST_STEP_S)
        return self.spent_s > self.seconds


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped until somebody lets it go on; False where none can tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError):
        return False
    # The name may hold spaces and parentheses; the state follows the last one.
    return stat.rpartition(")")[2].split()[0] in _STOPPED
