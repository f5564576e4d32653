"""What commands need of where they run. Every backend gives the same objects."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from search.progress import OnPhase, Phase
from search.records import CacheMode, TuneRequest

Json = dict[str, Any]
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
