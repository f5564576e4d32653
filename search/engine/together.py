"""A search that other machines share: they try candidates of one study while this one does, too.

Twice as many candidates are out as there are helpers: each tries one, and has the next when that
is done. None is out before this machine has timed one, since that is the first control.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median

from tilewise.search.engine.exploration import Exploration
from tilewise.search.helpers import Candidate, Exchanged, Helpers
from tilewise.search.records import TrialRecord
from tilewise.search.runner.interface import TrialRunner

EACH = 2  # candidates that are out for each helper
LOOK_S = 0.5  # between two looks whether there are helpers
WAIT_S = 0.05  # between two looks for the last trials
LATE_S, LATE_TIMES = 15.0, 10  # as long as so many trials, a candidate is late


@dataclass
class Together:
    """What the leader of a search does about its helpers; a context manager.

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

    def __enter__(self) -> "Together":
        self._thread = ThreadPoolExecutor(1, "helpers")
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def took(self, seconds: float) -> None:
        """Know how long a trial of this machine took."""
        self._took_s.append(seconds)

    def meanwhile(self) -> Callable[[], None] | None:
        """Begin an exchange with the helpers, while this machine tries a candidate.

        Returns:
            What takes in its outcome, to be called before that trial is numbered; None where no
            exchange is due.
        """
        search = self.search
        is_due = time.monotonic() >= self._looked_s + LOOK_S
        if search.best is None or not (self._count or search.out or is_due):
            return None
        begun = self._thread.submit(self._exchange, search.next_number, self._offered(), [])

        def take_in() -> None:
            self._take_in(begun)

        return take_in

    def is_under_way(self) -> bool:
        """Whether helpers try candidates still, though this machine has none left to try.

        It takes back one that no helper has begun, the last that one would begin.
        """
        out = self.search.out
        if not out:
            return False
        begun = self._thread.submit(self._exchange, self.search.next_number, [], [max(out)])
        if not self._take_in(begun):
            time.sleep(WAIT_S)
        return True

    def _offered(self) -> list[Candidate]:
        offered: list[Candidate] = []
        while len(self.search.out) < EACH * self._count:
            candidate = self.search.offer()
            if candidate is None:
                break
            offered.append(candidate)
        return offered

    def _exchange(self, start: int, offered: Sequence[Candidate], back: Sequence[int]) -> Exchanged:
        late_s = max(LATE_S, LATE_TIMES * median(self._took_s or [0.0]))
        return self.helpers.exchange(start, offered, back, late_s)

    def _take_in(self, begun: "Future[Exchanged]") -> bool:
        """Learn from an exchange once it has ended; whether anything came of it."""
        search, found = self.search, begun.result()
        self._count, self._looked_s = found.helpers, time.monotonic()
        for helped in found.helped:
            trial = search.take_in(helped)
            if self.on_trial:
                self.on_trial(trial, search.best)
        mine = sorted(set(search.out) - set(found.out))
        for number in mine:
            search.take_back(number, self.runner)
        return bool(found.helped or mine)
