"""A search that other machines share: they try candidates of one study while this one does, too.

Twice as many candidates are out as there are helpers: each tries one, and has the next when that
is done. None is out before this machine has timed one, since that is the first control.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from search.engine.exploration import Exploration
from search.helpers import Helpers
from search.records import TrialRecord
from search.runner.interface import TrialRunner

EACH = 2  # candidates that are out for each helper
LOOK_S = 0.5  # between two looks whether there are helpers
WAIT_S = 0.05  # between two looks for the last trials
LATE_S, LATE_TIMES = 15.0, 10  # as long as so many trials, a candidate is late


@dataclass
class Together:
    """What the leader of a search does about its helpers.

    Attributes:
        search: what they share.
        runner: of this machine.
        helpers: the other machines.
        on_trial: called with each trial of theirs and the best so far.
    """

    search: Exploration
    runner: TrialRunner
    helpers: Helpers
    on_trial: Callable[[TrialRecord, TrialRecord | None], None] | None = None
    _count: int = field(default=0, init=False)
    _looked_s: float = field(default=float("-inf"), init=False)
    _took_s: list[float] = field(default_factory=list, init=False)

    def after(self, took_s: float) -> None:
        """Once this machine has tried a candidate, in so many seconds: see to the others."""
        self._took_s.append(took_s)
        is_due = time.monotonic() >= self._looked_s + LOOK_S
        if self.search.best is not None and (self._count or self.search.out or is_due):
            self._exchange(back=False)

    def is_under_way(self) -> bool:
        """Whether helpers try candidates still, though this machine has none left to try.

        It takes back one that no helper has begun, the last that one would begin.
        """
        if not self.search.out:
            return False
        if not self._exchange(back=True):
            time.sleep(WAIT_S)
        return True

    def _exchange(self, *, back: bool) -> bool:
        """One exchange with the helpers; whether anything came of it."""
        search = self.search
        taken_back = [max(search.out)] if back else []
        offered = []
        while not back and len(search.out) < EACH * self._count:
            candidate = search.offer()
            if candidate is None:
                break
            offered.append(candidate)
        found = self.helpers.exchange(search.next_number, offered, taken_back, self._late_s)
        self._count, self._looked_s = found.helpers, time.monotonic()
        for helped in found.helped:
            trial = search.take_in(helped)
            if self.on_trial:
                self.on_trial(trial, search.best)
        mine = sorted(set(search.out) - set(found.out))
        for number in mine:
            search.take_back(number, self.runner)
        return bool(found.helped or mine)

    @property
    def _late_s(self) -> float:
        return max(LATE_S, LATE_TIMES * median(self._took_s or [0.0]))
