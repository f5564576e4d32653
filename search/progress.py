"""How far a search has come, in words that a person who waits for it understands."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from search.records import TrialState

PhaseName = Literal["search", "proof", "finals"]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)


@dataclass(frozen=True)
class Phase:
    """What a search is doing, and how much of it is done.

    Attributes:
        name: `search` counts trials, `proof` scripts, `finals` processes that time the finalists.
        done: of `total`.
        total: how many there will be at most; 0 where nobody can say.
    """

    name: PhaseName
    done: int
    total: int


@dataclass(frozen=True)
class TrialSeen:
    """A trial that has ended, as far as somebody who waits wants to know.

    Attributes:
        number: 0, 1, ... within the job.
        state: how it ended.
        failure: class of the failure, None unless failed.
        gflops: its speed, None for failures.
        interval: of that speed, 95%.
    """

    number: int
    state: TrialState
    failure: str | None = None
    gflops: float | None = None
    interval: tuple[float, float] | None = None


OnPhase = Callable[[Phase], None]
OnTrialSeen = Callable[[TrialSeen], None]
