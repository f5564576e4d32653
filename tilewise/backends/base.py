"""What commands need of where they run. Every backend gives the same objects."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from search.progress import OnPhase, Phase
from search.records import CacheMode, TuneRequest

if TYPE_CHECKING:  # it loads httpx, which commands here do without
    from tilewise.client.found import Found, Text

Json = dict[str, Any]
Known = Mapping[str, Mapping[str, str]]
Report = Callable[[int, float | None], None]
"""Told of the number of finished trials and the best speed in GFLOP/s so far."""


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
        report: Report,
        on_phase: OnPhase = ignore_phase,
    ) -> Json:
        """Search and store; the contract's result object."""

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
        self, problems: Sequence[str], target: str, files: Sequence[str], known: Known
    ) -> "list[Found]":
        """What is stored of each problem, with the tags of its files, in as few steps as can be.

        Args:
            problems: in the order of the answers.
            target: of all of them.
            files: flavors of scripts, and `kernel`.
            known: tags of the files that are here, by a problem's key and the file's kind.
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
