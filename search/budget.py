"""A budget in seconds, divided among search, proof of the finalists' scripts, and final benchmark.

The proof's time is not bounded, so it precedes the final benchmark, whose rounds end on time.
"""

import time
from dataclasses import dataclass, field
from statistics import median

from tilewise.search.records import TuneRequest

SEARCH_SHARE = 0.45  # at least, whatever the rest wants
FINAL_SHARE, LEAST_FINAL_S, MOST_FINAL_S = 0.12, 1.0, 8.0
LEAST_EVICTIONS = 8  # of the final benchmark: four finalists are timed twice, however late it is
PROOF_S, PROOF_STARTS = 1.0, 2.0  # of the first script; its process starts like the timing one
END_S, END_STARTS = 0.1, 0.2  # to end the processes, store and print the result


@dataclass
class Budget:
    """When each part has to end, in seconds of `time.monotonic`.

    `start_s` is the measured start time of a process. `evicting_s` is the time to empty the caches
    before each sample, 0 if that is not done.
    """

    request: TuneRequest
    began: float
    start_s: float = 1.0
    evicting_s: float = 0.0
    _trials_s: list[float] = field(default_factory=list, init=False)

    def took(self, trial_s: float) -> None:
        """Record how long a trial took."""
        self._trials_s.append(trial_s)

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    @property
    def end_s(self) -> float:
        """Seconds reserved after the final benchmark; more on a busy machine."""
        return END_S + END_STARTS * self.start_s

    def search_is_over(self) -> bool:
        """Return whether a typical further trial would not end in time."""
        seconds = self.request.seconds
        if seconds is None:
            return False
        proof_s = PROOF_S + PROOF_STARTS * self.start_s
        share = max(SEARCH_SHARE * seconds, seconds - self._final_s - proof_s - self.end_s)
        others = self._trials_s[1:]  # the first one also makes what its process keeps
        return self.spent_s + (median(others) if others else 0.0) >= share

    @property
    def final_begins(self) -> float | None:
        """When the final benchmark should begin."""
        seconds = self.request.seconds
        return None if seconds is None else self.began + seconds - self.end_s - self._final_s

    @property
    def final_left_s(self) -> float | None:
        """Seconds until the final benchmark has to end."""
        seconds = self.request.seconds
        return None if seconds is None else max(0.0, seconds - self.end_s - self.spent_s)

    @property
    def _final_s(self) -> float:
        wanted = FINAL_SHARE * (self.request.seconds or 0.0)
        least = LEAST_FINAL_S + LEAST_EVICTIONS * self.evicting_s
        return self.start_s + max(least, min(MOST_FINAL_S, wanted))
