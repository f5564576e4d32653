"""A budget in seconds, shared out: search, then the proof of the finalists' scripts, then finals.

The proof takes what it takes, so it comes before the finals, whose rounds end on the second.
"""

import time
from dataclasses import dataclass

from search.records import TuneRequest

SEARCH_SHARE = 0.45  # at least, whatever the rest wants
FINALS_SHARE, LEAST_FINALS_S, MOST_FINALS_S = 0.12, 1.0, 8.0
FRESH_PROCESS_S = 1.5  # to start and set up
PROOF_S = 3.0  # of the first script; the cost of the further ones is known by then
LATEST = 0.2  # seconds to store and print the result


@dataclass(frozen=True)
class Budget:
    """When each part has to end, in seconds of `time.monotonic`.

    Attributes:
        request: what was asked.
        began: when its time began.
    """

    request: TuneRequest
    began: float

    @property
    def spent_s(self) -> float:
        """Since it began."""
        return time.monotonic() - self.began

    def search_is_over(self) -> bool:
        """Whether no further trial may begin."""
        seconds = self.request.seconds
        if seconds is None:
            return False
        share = max(SEARCH_SHARE * seconds, seconds - self._finals_s - PROOF_S - LATEST)
        return self.spent_s >= share

    @property
    def finals_begin(self) -> float | None:
        """When the finals should begin."""
        seconds = self.request.seconds
        return None if seconds is None else self.began + seconds - LATEST - self._finals_s

    @property
    def finals_left_s(self) -> float | None:
        """Seconds until the finals have to end."""
        seconds = self.request.seconds
        return None if seconds is None else max(0.0, seconds - LATEST - self.spent_s)

    @property
    def _finals_s(self) -> float:
        wanted = FINALS_SHARE * (self.request.seconds or 0.0)
        return FRESH_PROCESS_S + min(MOST_FINALS_S, max(LEAST_FINALS_S, wanted))
