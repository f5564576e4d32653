"""Messages between the leader and the workers of a distributed search."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewise.kernels.mlir.tuning_spec.config import AnySchedule
from tilewise.search.records import TrialRecord


@dataclass(frozen=True)
class RemoteTrial:
    """A point to try, with what its time depends on.

    Attributes:
        number: of the trial; for another machine, of the candidate within the run.
        params: the point of the space.
        best_s: seconds of the best so far at speed factor 1, if any.
        control: `steps` and `seconds` (at factor 1) of the schedule that the factor is read from.
            Each machine times it itself, so that all times have one scale.
    """

    number: int
    schedule: AnySchedule
    params: dict[str, Any]
    origin: str
    best_s: float | None = None
    control: dict[str, Any] | None = None

    @property
    def steps(self) -> list[Any]:
        """The schedule as JSON."""
        return list(self.schedule.to_json())


@dataclass(frozen=True)
class Helped:
    """A candidate that a worker has tried, as a stored trial; `place` names the worker."""

    number: int
    trial: TrialRecord
    place: str


@dataclass(frozen=True)
class Exchanged:
    """The result of an exchange.

    Attributes:
        helped: every trial of a worker from a number on.
        out: numbers of candidates that workers have or will take.
        helpers: number of workers.
    """

    helped: Sequence[Helped]
    out: Collection[int]
    helpers: int


class Helpers(Protocol):
    """The workers, as the leader sees them."""

    def exchange(
        self, start: int, offered: Sequence[RemoteTrial], back: Collection[int], late_s: float
    ) -> Exchanged:
        """Offer candidates, withdraw others, and return what was tried and stored.

        `start` is the first unknown trial number. Candidates in `back` are withdrawn unless a
        worker has begun them, and any after `late_s` seconds.
        """
        ...


class Leader(Protocol):
    """The leader, as a worker sees it."""

    def help(self, answer: TrialRecord | None, wants: int) -> list[RemoteTrial] | None:
        """Report a trial by its candidate's number, and take up to `wants` candidates.

        Returns all candidates that this machine holds; None once the search needs no help.
        """
        ...
