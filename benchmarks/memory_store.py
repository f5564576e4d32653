"""A store of trials in memory, for measurements and tests."""

from collections.abc import Iterable, Sequence

from tilewise.search.records import Earlier, Solved, TrialRecord


class MemoryStore:
    """Trials in memory, with given results and speed factors of other searches."""

    def __init__(
        self, solved: Iterable[Solved] = (), speed_factors: Iterable[list[float]] = ()
    ) -> None:
        self._speed_factors = list(speed_factors)
        self._trials: dict[int, TrialRecord] = {}
        self._solved = list(solved)

    def trials(self) -> list[TrialRecord]:
        """Return every finished trial, by number."""
        return [self._trials[number] for number in sorted(self._trials)]

    def known_failures(self) -> set[str]:
        """Return the failures of this search."""
        failed = (trial for trial in self._trials.values() if trial.failure)
        return {trial.schedule.hash for trial in failed if trial.failure != "runtime"}

    def earlier_speed_factors(self) -> list[list[float]]:
        """Return the given factors."""
        return self._speed_factors

    def add(self, trial: TrialRecord) -> None:
        """Add a trial; raise ValueError if its number is taken."""
        if trial.number in self._trials:
            raise ValueError(f"trial {trial.number} is stored already")
        self._trials[trial.number] = trial

    def correct(self, trials: Sequence[TrialRecord]) -> None:
        """Replace trials."""
        self._trials |= {trial.number: trial for trial in trials}

    def earlier(self, operation: str) -> list[Earlier]:
        """Return the given searches for an operation."""
        return [
            Earlier(key, known.problem, known.target, len(known.points) + len(known.slower))
            for key, known in enumerate(self._solved)
            if known.problem.op == operation
        ]

    def solved(self, searches: Sequence[Earlier]) -> list[Solved]:
        """Return what some of those found."""
        return [self._solved[search.key] for search in searches]
