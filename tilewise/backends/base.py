"""What commands need of where they run. Every backend gives the same objects."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tilewise.search.progress import OnPhase, Phase
from tilewise.search.records import CacheMode, TrialState, TuneRequest

if TYPE_CHECKING:  # it loads httpx, which commands here do without
    from tilewise.schema.results import Found, ObjectFiles, Text

Json = dict[str, Any]
Match = Literal["exact", "nearest"]
Known = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class TrialSeen:
    """A trial that has ended, as far as somebody who waits wants to know.

    Attributes:
        number: 0, 1, ... within the job.
        state: how it ended.
        failure: class of the failure, None unless failed.
        gflops: its speed, None for failures.
        interval: of that speed, 95%; None where one sample gave it.
        best: the fastest so far, by the speed that is known now; None where only trials are told.
    """

    number: int
    state: TrialState
    failure: str | None = None
    gflops: float | None = None
    interval: tuple[float, float] | None = None
    best: "TrialSeen | None" = None


OnTrialSeen = Callable[[TrialSeen], None]


def ignore_phase(_phase: Phase) -> None:
    """For callers that want to know of no phases."""


class Backend(ABC):
    """What commands need; a context manager."""

    def __enter__(self) -> "Backend":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go of connections."""

    @abstractmethod
    def tune(
        self,
        problem: str,
        target: str,
        request: TuneRequest,
        on_trial: OnTrialSeen,
        on_phase: OnPhase = ignore_phase,
        *,
        again: bool = False,
    ) -> Json:
        """Search and store; the contract's result object.

        Args:
            problem: what is searched for.
            target: where.
            request: how hard.
            on_trial: told of each trial that ends meanwhile, once.
            on_phase: told of what comes after them.
            again: whether to time the finalists of a stored result again.
        """

    @abstractmethod
    def peak(self, problem: str, target: str) -> float | None:
        """The multiply-add peak that a search can reach, in GFLOP/s; None where nobody knows."""

    @abstractmethod
    def show(self, problem: str, target: str, cache: CacheMode | None = None) -> Json:
        """The stored result, of a cache mode if named; MissingError when there is none."""

    @abstractmethod
    def script(self, problem: str, target: str, flavor: str, with_payload: bool) -> str:
        """The proven script; MissingError when there is none."""

    @abstractmethod
    def kernel(self, problem: str, target: str) -> str:
        """The best schedule's kernel as a Python module; MissingError when there is none."""

    @abstractmethod
    def object_files(self, problem: str, target: str) -> "ObjectFiles":
        """The best schedule's kernel as a proven object; MissingError when there is none."""

    @abstractmethod
    def trials(self, problem: str, target: str) -> list[Json]:
        """Every stored trial of the problem; MissingError when there is none."""

    @abstractmethod
    def job(self, number: int) -> Json:
        """A job as it is now; an error when there is none of this number."""

    @abstractmethod
    def job_trials(self, number: int) -> list[Json]:
        """The finished trials of a job, by number."""

    @abstractmethod
    def look_up(
        self,
        problems: Sequence[str],
        target: str,
        files: Sequence[str],
        known: Known,
        match: Match = "exact",
    ) -> "list[Found]":
        """What is stored of each problem, with the tags of its files, in as few steps as can be.

        Args:
            problems: in the order of the answers.
            target: of all of them.
            files: flavors of scripts, and `kernel`.
            known: tags of the files that are here, by a problem's key and the file's kind.
            match: whether results of other targets may stand in.
        """

    @abstractmethod
    def text(self, found: "Found", kind: str) -> "Text":
        """A script or a kernel that a look-up has named; MissingError when it is gone."""

    @abstractmethod
    def submit(self, problem: str, target: str, request: TuneRequest) -> None:
        """Have a search begin as soon as it can, for a `tune` that comes later to wait for."""

    @abstractmethod
    def store_report(self, report: Json) -> int:
        """Keep what a suite came to; the report's number."""
