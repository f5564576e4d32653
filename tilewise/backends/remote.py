"""Commands that run at a service, through its HTTP API."""

import sys
from collections.abc import Callable
from dataclasses import asdict

from search.progress import OnPhase, Phase
from search.records import CacheMode, TuneRequest
from tilewise.backends.base import Backend, Json, Report, ignore_phase
from tilewise.client import Client
from tilewise.errors import BadInputError, MissingError


class RemoteBackend(Backend):
    """A backend at a service."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def tune(
        self,
        problem: str,
        target: str,
        request: TuneRequest,
        report: Report,
        on_phase: OnPhase = ignore_phase,
    ) -> Json:
        """Post a job, wait for it, and fetch the result."""

        def on_progress(job: Json) -> None:
            counts = job["trials"]
            done = counts["timed"] + counts["pruned"] + counts["failed"]
            report(done, job["best"]["gflops"] if job["best"] else None)
            if job["state"] == "running" and done >= counts["asked"]:
                on_phase(Phase("proof and finals", 0, 0))

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
