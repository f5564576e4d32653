"""What a search needs of a runner, wherever that runs its candidates."""

from typing import Any, Protocol

from tilewise.search.runner.protocol import FinalsReply, Message, TrialReply


class FinalsRunner(Protocol):
    """What the finals need of a runner."""

    def finals(
        self,
        schedules: list[list[Any]],
        rounds: int,
        peers: bool,
        placements: int = 1,
        budget_s: float | None = None,
    ) -> FinalsReply:
        """Time finalists again."""
        ...

    def renew(self) -> None:
        """Time in a fresh process from now on."""
        ...


class TrialRunner(Protocol):
    """What trials need of a runner; see `tilewise.search.runner.runner.Runner`."""

    @property
    def ahead(self) -> int:
        """How many candidates are worth preparing while one is timed."""
        ...

    def prepare(self, steps: list[Any]) -> None:
        """Have a schedule compiled before its trial, while others are timed."""
        ...

    def trial(
        self, steps: list[Any], best_s: float | None, control: Message | None = None
    ) -> TrialReply:
        """Compile, check and time one schedule."""
        ...


class CandidateRunner(TrialRunner, FinalsRunner, Protocol):
    """What the search needs of a runner; see `tilewise.search.runner.runner.Runner`."""

    @property
    def start_s(self) -> float:
        """Seconds that the start of the timing process took."""
        ...

    def settle(self) -> None:
        """End whatever computes beside the timing."""
        ...
