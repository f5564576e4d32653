"""A run outlives its database's absence: what it asks is asked again, for a while.

Only whole transactions are repeated. One whose answer was lost may have been committed, so each is
told whether it is a repetition, and takes what it finds of its own for its success.
"""

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tilewise.search.records import Earlier, Solved, TrialRecord
from tilewise.service.errors import PASSING
from tilewise.service.jobs.trial_store import SqlTrialStore

PATIENCE_S = 90.0
"""For how long a run waits for its database, which may be restarted meanwhile."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


def patiently(step: Callable[[bool], Answer], what: str, patience_s: float | None = None) -> Answer:
    """What `step` returns, once the database lets it.

    Args:
        step: a whole transaction; told whether it is a repetition.
        what: it does, for the log: `job 3, trial 5`.
        patience_s: seconds after which it is not begun again; None is `PATIENCE_S`.

    Raises:
        DatabaseError: one that does not pass, or has not passed in time.
    """
    wait_s = PATIENCE_S if patience_s is None else patience_s
    end, tries = time.monotonic() + wait_s, 0
    while True:
        try:
            answer = step(tries > 0)
        except PASSING as error:
            if time.monotonic() >= end:
                raise
            if not tries:
                log.warning("%s: %s; trying again for %.0f s", what, error, wait_s)
        else:
            if tries:
                log.warning("%s: done, at try %d", what, tries + 1)
            return answer
        time.sleep(min(_pause_s(tries), max(0.0, end - time.monotonic())))
        tries += 1


def _pause_s(tries: int) -> float:
    """A pause that doubles with each try, of which chance takes up to half.

    Without chance, all runs that lost one database would come back at one moment.
    """
    longest = min(FIRST_PAUSE_S * 2.0 ** min(tries, 10), LONGEST_PAUSE_S)
    return longest * random.uniform(0.5, 1.0)


class PatientTrials:
    """A `tilewise.search.store.TrialStore` over one in a database that may be away for a while.

    Args:
        store: where the trials are.
        job_id: whose they are, for the log.
    """

    def __init__(self, store: SqlTrialStore, job_id: int) -> None:
        self._store = store
        self._job_id = job_id

    def trials(self) -> list[TrialRecord]:
        """Every finished trial, by number."""
        return self._read(self._store.trials)

    def known_failures(self) -> set[str]:
        """Hashes of schedules that failed in any search of the same work."""
        return self._read(self._store.known_failures)

    def earlier_paces(self) -> list[list[float]]:
        """The paces of the trials of other searches of late, by search."""
        return self._read(self._store.earlier_paces)

    def earlier(self, operation: str) -> list[Earlier]:
        """The earlier searches for an operation, the newest first."""
        return self._read(lambda: self._store.earlier(operation))

    def solved(self, searches: Sequence[Earlier]) -> list[Solved]:
        """What some of those have found."""
        return self._read(lambda: self._store.solved(searches))

    def add(self, trial: TrialRecord) -> None:
        """Keep one finished trial; as the other store does, once that can."""

        def step(is_repeated: bool) -> None:
            keep = self._store.ensure if is_repeated else self._store.add
            keep(trial)

        patiently(step, f"job {self._job_id}, trial {trial.number}")

    def correct(self, trials: Sequence[TrialRecord]) -> None:
        """Replace the speeds and paces of stored trials, once the database can."""
        patiently(lambda _: self._store.correct(trials), f"job {self._job_id}, speeds of trials")

    def _read(self, ask: Callable[[], Answer]) -> Answer:
        return patiently(lambda _: ask(), f"job {self._job_id}")
