"""`Keeper`: where the job of a run is kept, as the run sees it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from tilewise.search.helpers import Helpers
from tilewise.search.progress import Phase
from tilewise.search.records import Best, TuneRequest, TuneResult
from tilewise.search.store import TrialStore
from tilewise.service.host.machine import MachineInfo
from tilewise.service.jobs.outcome import Attempt


@dataclass(frozen=True)
class Order:
    """What a run is to do.

    Attributes:
        job_id: the job.
        problem: its canonical string.
        target: canonical, such as `cpu:znver4,threads=1`.
        request: how hard to search.
        elapsed_s: seconds that the job's earlier runs took.
    """

    job_id: int
    problem: str
    target: str
    request: TuneRequest
    elapsed_s: float


class Keeper(Protocol):
    """Keeps one job for one run of it, whose lease every write carries."""

    @property
    def epoch(self) -> int:
        """The number of the run."""
        ...

    @property
    def request_id(self) -> str:
        """Of the request that asked for the job; empty where none is known."""
        ...

    @property
    def order(self) -> Order:
        """What the run is to do."""
        ...

    @property
    def trials(self) -> TrialStore:
        """The job's trials; one counts once it is kept."""
        ...

    @property
    def helpers(self) -> Helpers | None:
        """Other machines that may share the search; None where there can be none."""
        ...

    def beating(self) -> AbstractContextManager[Callable[[], bool]]:
        """Keeps the lease meanwhile; gives what says whether the run should stop."""
        ...

    def note(self, phase: Phase) -> None:
        """Keep what the run does now; one that cannot be kept is no reason to stop."""
        ...

    def done(
        self, result: TuneResult, best: Best, attempts: Sequence[Attempt], machine: MachineInfo
    ) -> bool:
        """End the job with what was found; False where it was cancelled or taken over."""
        ...

    def failed(self, message: str) -> bool:
        """End the job without a result; False where it was cancelled or taken over."""
        ...

    def release(self) -> None:
        """Give the job back to the queue."""
        ...
