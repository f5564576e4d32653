"""The driver's side of a Dask scheduler: which workers there are, and tasks that they are given."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tilewise.service.cluster.facts import TIMING, Facts, facts_in
from tilewise.service.cluster.scheduler import UNUSABLE, configure
from tilewise.service.cluster.task import run_offer
from tilewise.service.errors import UnreachableError
from tilewise.service.runs.offers import OfferedJob

CONNECT_S = 5.0
ANSWER_S = 5.0

TaskOutcome = Literal["ended", "killed"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """A job that was given to a worker."""

    future: Any

    def outcome(self) -> TaskOutcome | None:
        """Return None while it runs, `killed` if its worker died, else `ended`."""
        status = self.future.status
        if status == "pending":
            return None
        return "killed" if status == "error" and self._is_killed() else "ended"

    def _is_killed(self) -> bool:
        from distributed import KilledWorker

        error = self.future.exception(timeout=ANSWER_S)
        if isinstance(error, KilledWorker):
            return True
        log.error("a worker could not run a job: %s", error)
        return False

    def cancel(self) -> None:
        """Cancel the task; the service reports the state of a run that continues."""
        self.future.cancel()


class Cluster:
    """The workers of a Dask scheduler; `arguments` are passed to `tilewise.service.workers`."""

    def __init__(self, scheduler: str, service: str, arguments: Sequence[str] = ()) -> None:
        configure()
        self._scheduler, self._service, self._arguments = scheduler, service, tuple(arguments)
        self._client: Any = None

    def workers(self) -> dict[str, Facts]:
        """Return the workers by address; raise UnreachableError if the scheduler is away."""
        client = self._connected()
        try:
            # A scheduler that is frozen must not freeze the driver.
            found = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER_S)
        except (OSError, TimeoutError) as error:
            raise self._away(error) from error
        return facts_in(found["workers"])

    def submit(self, offer: OfferedJob, toolchain: str) -> Task:
        """Submit a job to the worker that it is offered to, which runs nothing else."""
        helps = ("--helps",) if offer.role == "helper" else ()
        arguments = (*self._arguments, f"--kind={offer.kind}", *helps)
        given = offer.job_id, offer.token, self._service, toolchain, arguments
        future = self._connected().submit(
            run_offer,
            *given,
            key=f"job-{offer.job_id}-{time.time_ns()}",
            workers=[offer.worker],
            resources={TIMING: 1.0, offer.target: 1.0},
            pure=False,
            retries=0,
        )
        return Task(future)

    def close(self) -> None:
        """Leave the cluster."""
        if self._client is not None:
            self._client.close(timeout=ANSWER_S)

    def _connected(self) -> Any:
        """The client; a new one where the last was closed, which a client is for good."""
        from distributed import Client

        if self._client is None or self._client.status in ("closed", "closing"):
            self._client = None
            try:
                self._client = Client(
                    self._scheduler, timeout=CONNECT_S, set_as_default=False, name="tilewise"
                )
            except UNUSABLE as error:
                raise self._away(error) from error
            log.info("scheduler %s", self._scheduler)
        if self._client.status != "running":
            raise self._away("the connection is being made again")
        return self._client

    def _away(self, why: object) -> UnreachableError:
        return UnreachableError(f"the scheduler {self._scheduler} does not answer: {why}")
