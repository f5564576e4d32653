"""Where a command runs: here, or at a service. Both give the same objects."""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from kernels.system.children import ONE_THREAD
from search.records import CacheMode, TuneRequest
from tilewise.client import Client
from tilewise.errors import BadInputError, MissingError, TilewiseError

Json = dict[str, Any]
Report = Callable[[int, float | None], None]
"""Told of the number of finished trials and the best speed in GFLOP/s so far."""


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
    def tune(self, problem: str, target: str, request: TuneRequest, report: Report) -> Json:
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


def local_backend(database: str | None, began: float | None = None) -> Backend:
    """A backend on this machine; TilewiseError when the extras are not installed.

    Args:
        database: its URL; None is the environment's.
        began: the moment of `time.monotonic` from which a budget in seconds counts.
    """
    # The search's own matrices are small: threads would only spin where candidates are timed.
    os.environ.update(ONE_THREAD)
    try:
        from tilewise.backends.local import LocalBackend
    except ModuleNotFoundError as error:
        raise TilewiseError(
            f"running here needs {error.name}; install tilewise[service], or give --server URL"
        ) from error
    return LocalBackend(database, began)


class RemoteBackend(Backend):
    """A backend at a service."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def tune(self, problem: str, target: str, request: TuneRequest, report: Report) -> Json:
        """Post a job, wait for it, and fetch the result."""

        def on_progress(job: Json) -> None:
            counts = job["trials"]
            done = counts["timed"] + counts["pruned"] + counts["failed"]
            report(done, job["best"]["gflops"] if job["best"] else None)

        return self._client.tune(problem, on_progress, target=target, **asdict(request))

    def show(self, problem: str, target: str, cache: CacheMode | None = None) -> Json:
        """Fetch the stored result."""
        return self._client.schedule(problem, target, cache)

    def script(self, problem: str, target: str, flavor: str, with_payload: bool) -> str:
        """Fetch the script."""
        if with_payload:
            raise BadInputError("--with-payload is made here; leave out --server")
        return self._client.script(problem, target, flavor, _say_waiting("proves the script"))

    def kernel(self, problem: str, target: str) -> str:
        """Fetch the module."""
        return self._client.kernel(problem, target, _say_waiting("prints the kernel"))

    def trials(self, problem: str, target: str) -> list[Json]:
        """Fetch the trials."""
        found = list(self._client.stored_trials(problem, target))
        if not found:
            raise MissingError(f"no trials of {problem} are stored for {target}")
        return found


def _say_waiting(doing: str) -> Callable[[], None]:
    """Tells somebody who watches why there is no answer yet."""

    def on_wait() -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"tilewise: the service {doing}, which takes a moment\n")

    return on_wait
