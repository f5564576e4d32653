"""What a search requires of a runner."""

from typing import Any, Protocol

from tilewise.search.runner.protocol import FinalsReply, Message, TrialReply


class FinalsRunner(Protocol):
    """What the final benchmark requires of a runner."""

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
        """Use a fresh process from now on."""
        ...


class TrialRunner(Protocol):
    """What trials require of a runner; see `tilewise.search.runner.runner.Runner`."""

    @property
    def ahead(self) -> int:
        """How many candidates are worth preparing while one is timed."""
        ...

    def prepare(self, steps: list[Any]) -> None:
        """Compile a schedule while others are timed."""
        ...

    def trial(
        self, steps: list[Any], best_s: float | None, control: Message | None = None
    ) -> TrialReply:
        """Compile, check and time one schedule."""
        ...


class CandidateRunner(TrialRunner, FinalsRunner, Protocol):
    """What a search requires of a runner."""

    @property
    def start_s(self) -> float:
        """Start time of the timing process in seconds."""
        ...

    def settle(self) -> None:
        """End whatever computes beside the timing."""
        ...
