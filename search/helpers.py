"""What the machines that share one search tell each other; whoever joins them implements it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewise.kernels.mlir.tuning_spec.config import AnySchedule
from tilewise.search.records import TrialRecord


@dataclass(frozen=True)
class Candidate:
    """A point that is to be tried, with what tells its time.

    Attributes:
        number: of the trial; of a candidate for another machine, among those of the run.
        schedule: what is to be timed.
        params: the point of the search space that gave the schedule.
        origin: who proposed it.
        best_s: seconds of the best so far at pace 1; None where there is none.
        control: `steps` and `seconds` (at pace 1) of the schedule that the pace is read from.
            A machine times it itself, so the times of all machines are of one scale.
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
    """A candidate that another machine has tried, as a stored trial.

    Attributes:
        number: of the candidate.
        trial: numbered as it is stored.
        place: names the machine; those of one place were timed by one helper.
    """

    number: int
    trial: TrialRecord
    place: str


@dataclass(frozen=True)
class Exchanged:
    """What an exchange comes to.

    Attributes:
        helped: every trial of a helper from a number on.
        out: numbers of the candidates that are with the helpers, or wait for one.
        helpers: how many there are.
    """

    helped: Sequence[Helped]
    out: Collection[int]
    helpers: int


class Helpers(Protocol):
    """The other machines, as the one that leads the search sees them."""

    def exchange(
        self, start: int, offered: Sequence[Candidate], back: Collection[int], late_s: float
    ) -> Exchanged:
        """Put candidates out, take others back, and have what was timed stored.

        Args:
            start: the number of the first trial that is not known yet.
            offered: candidates that are new.
            back: numbers of those that are to be taken back, unless a helper has them.
            late_s: after so many seconds a candidate is taken back from its helper.
        """
        ...


class Leader(Protocol):
    """The machine that leads the search, as a helper sees it."""

    def help(self, answer: TrialRecord | None, wants: int) -> list[Candidate] | None:
        """Say what came of a candidate, and take others.

        Args:
            answer: the trial, with the candidate's number.
            wants: so many candidates this machine holds at most.

        Returns:
            All candidates that this machine holds; None where the search needs no help any more.
        """
        ...
