"""Where the trials of a job are kept; the search needs no more of a store than this."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from tilewise.search.records import Earlier, Solved, TrialRecord


class TrialStore(Protocol):
    """The trials of one job. A trial counts once `add` has returned."""

    def trials(self) -> list[TrialRecord]:
        """Every finished trial, by number."""
        ...

    def add(self, trial: TrialRecord) -> None:
        """Keep one finished trial durably."""
        ...

    def correct(self, trials: Sequence[TrialRecord]) -> None:
        """Replace the speed and the pace of trials that are stored; `rescaled` says why."""
        ...

    def earlier(self, operation: str) -> list[Earlier]:
        """The earlier searches for an operation (`matmul`), on any target, the newest first."""
        ...

    def solved(self, searches: Sequence[Earlier]) -> list[Solved]:
        """What some of those have found, in the order of `searches`."""
        ...

    def known_failures(self) -> set[str]:
        """Hashes of schedules that failed in any search of the same problem, target and
        toolchain; they are not tried again.
        """
        ...

    def earlier_paces(self) -> list[list[float]]:
        """How the machine's pace went in other searches on the same target of late: of each,
        the paces of its trials, in their order.
        """
        ...


class MemoryStore:
    """Trials in memory, for searches that nobody resumes.

    Args:
        solved: what other searches have found.
        paces: of their trials.
    """

    def __init__(self, solved: Iterable[Solved] = (), paces: Iterable[list[float]] = ()) -> None:
        self._paces = list(paces)
        self._trials: dict[int, TrialRecord] = {}
        self._solved = list(solved)

    def trials(self) -> list[TrialRecord]:
        """Every finished trial, by number."""
        return [self._trials[number] for number in sorted(self._trials)]

    def known_failures(self) -> set[str]:
        """Those of this search, which is the only one that it knows."""
        return {trial.schedule.hash for trial in self._trials.values() if trial.failure}

    def earlier_paces(self) -> list[list[float]]:
        """The paces of other searches, as they were given."""
        return self._paces

    def add(self, trial: TrialRecord) -> None:
        """Keep one trial; ValueError when its number is taken."""
        if trial.number in self._trials:
            raise ValueError(f"trial {trial.number} is stored already")
        self._trials[trial.number] = trial

    def correct(self, trials: Sequence[TrialRecord]) -> None:
        """Replace trials that are kept."""
        self._trials |= {trial.number: trial for trial in trials}

    def earlier(self, operation: str) -> list[Earlier]:
        """The other searches for an operation (`matmul`), in the order they were given."""
        return [
            Earlier(key, known.problem, known.target, len(known.points) + len(known.slower))
            for key, known in enumerate(self._solved)
            if known.problem.op == operation
        ]

    def solved(self, searches: Sequence[Earlier]) -> list[Solved]:
        """What some of those have found."""
        return [self._solved[search.key] for search in searches]
