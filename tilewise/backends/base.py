"""The interface of commands to where they run; every backend returns the same objects."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tilewise.errors import MissingError
from tilewise.search.progress import OnPhase, SearchPhase
from tilewise.search.records import CacheMode, TrialState, TuneRequest

if TYPE_CHECKING:  # it loads httpx, which commands here do without
    from tilewise.kernels.problem import Problem
    from tilewise.schema.results import Found, ObjectFiles, Text

Json = dict[str, Any]
Match = Literal["exact", "nearest"]
Known = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class TrialSeen:
    """A finished trial as a watcher sees it.

    Attributes:
        number: 0, 1, ... within the job.
        failure: class of the failure, if any.
        interval: 95% interval of the speed; None if there was one sample.
        best: the fastest so far by present knowledge; None where only trials are reported.
    """

    number: int
    state: TrialState
    failure: str | None = None
    gflops: float | None = None
    interval: tuple[float, float] | None = None
    best: "TrialSeen | None" = None


OnTrialSeen = Callable[[TrialSeen], None]


def ignore_phase(_phase: SearchPhase) -> None:
    """Ignore phases."""


def prediction_of(problem: "Problem", target: str, predicted: Json | None) -> Json:
    """Return the object of `show --predict`; raise MissingError if nothing was predicted."""
    if predicted is None:
        raise MissingError(
            f"no schedule of {problem} is stored, and none can be predicted for {target}; "
            "tilewise tune finds one on such a machine"
        )
    key, text = problem.key, problem.canonical
    return {"problem": text, "key": key, "target": target, "best": predicted, "proof": None}


class Backend(ABC):
    """Runs commands here or at a service; a context manager."""

    def __enter__(self) -> "Backend":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close connections."""

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
        """Search and store; return the contract's result object.

        `on_trial` is called once per finished trial, `on_phase` for later phases. With `again` the
        finalists of a stored result are timed again.
        """

    @abstractmethod
    def peak(self, problem: str, target: str) -> float | None:
        """Return the multiply-add peak that a search can reach, in GFLOP/s, if known."""

    @abstractmethod
    def show(self, problem: str, target: str, cache: CacheMode | None = None) -> Json:
        """Return the stored result, of a cache mode if given, or raise MissingError."""

    @abstractmethod
    def predict(self, problem: str, target: str) -> Json:
        """Return a predicted schedule, its grade `predicted`, or raise MissingError."""

    @abstractmethod
    def script(self, problem: str, target: str, flavor: str, with_payload: bool) -> str:
        """Return the proven script or raise MissingError."""

    @abstractmethod
    def kernel(self, problem: str, target: str) -> str:
        """Return the kernel of the best schedule as a Python module, or raise MissingError."""

    @abstractmethod
    def object_files(self, problem: str, target: str) -> "ObjectFiles":
        """Return the kernel of the best schedule as a proven object, or MissingError."""

    @abstractmethod
    def trials(self, problem: str, target: str) -> list[Json]:
        """Return every stored trial of the problem or raise MissingError."""

    @abstractmethod
    def job(self, number: int) -> Json:
        """Return a job as it is now, or raise an error."""

    @abstractmethod
    def job_trials(self, number: int) -> list[Json]:
        """Return the finished trials of a job, by number."""

    @abstractmethod
    def look_up(
        self,
        problems: Sequence[str],
        target: str,
        files: Sequence[str],
        known: Known,
        match: Match = "exact",
    ) -> "list[Found]":
        """Return what is stored of each problem with the tags of its files, in one step.

        `files` are flavors of scripts and `kernel`; `known` has tags by problem key and kind;
        `match` decides whether results of other targets are allowed.
        """

    @abstractmethod
    def text(self, found: "Found", kind: str) -> "Text":
        """Return a file that a look-up named; raise MissingError if it is gone."""

    @abstractmethod
    def submit(self, problem: str, target: str, request: TuneRequest) -> None:
        """Start a search as soon as possible, for a later `tune` to wait for."""

    @abstractmethod
    def store_report(self, report: Json) -> int:
        """Store a suite's report; return its number."""
