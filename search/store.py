"""The interface of a search to the store of its trials."""

from collections.abc import Sequence
from typing import Protocol

from tilewise.search.records import Earlier, Solved, TrialRecord


class TrialStore(Protocol):
    """The trials of one job; a trial counts once `add` has returned."""

    def trials(self) -> list[TrialRecord]:
        """Return every finished trial, by number."""
        ...

    def add(self, trial: TrialRecord) -> None:
        """Store one finished trial durably."""
        ...

    def correct(self, trials: Sequence[TrialRecord]) -> None:
        """Replace speed and factor of stored trials; see `rescaled`."""
        ...

    def earlier(self, operation: str) -> list[Earlier]:
        """Return earlier searches for an operation, on any target, newest first."""
        ...

    def solved(self, searches: Sequence[Earlier]) -> list[Solved]:
        """Return what some of those found, in their order."""
        ...

    def known_failures(self) -> set[str]:
        """Return hashes of schedules that failed in any search of the same work."""
        ...

    def earlier_speed_factors(self) -> list[list[float]]:
        """Return the trials' speed factors of each recent search on this target."""
        ...
