"""The driver's side of a Dask scheduler: which workers there are, and tasks that they are given."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tilewise.service.cluster.facts import TIMING, Facts, facts_in
from tilewise.service.cluster.scheduler import UNUSABLE, configure
from tilewise.service.cluster.task import make_plan, run_offer
from tilewise.service.errors import PlanError, UnreachableError
from tilewise.service.runs.offers import OfferedJob

CONNECT_S = 5.0
ANSWER_S = 5.0

Ending = Literal["ended", "killed"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """A job that was given to a worker."""

    future: Any

    def ending(self) -> Ending | None:
        """None while it runs; `killed` where its worker has died with it."""
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
        """Forget it; the service reports the state of a run that continues."""
        self.future.cancel()


@dataclass(frozen=True)
class PlanTask:
    """A plan that was given to a worker."""

    future: Any

    def is_over(self) -> bool:
        """Whether it has ended, however it has."""
        status: str = self.future.status
        return status != "pending"

    def result(self) -> str:
        """What `make_plan` gave; PlanError where its worker has died with it."""
        if self.future.status != "finished":
            raise PlanError(f"its worker was lost, or could not begin ({self.future.status})")
        made: str = self.future.result(timeout=ANSWER_S)
        return made

    def cancel(self) -> None:
        """Forget it."""
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
        """Give a job to the worker that it is offered to."""
        helps = ("--helps",) if offer.role == "helper" else ()
        arguments = (*self._arguments, *helps)
        given = offer.job_id, offer.token, self._service, toolchain, arguments
        name = f"job-{offer.job_id}"
        return Task(self._submit(run_offer, *given, to=offer.worker, on=offer.target, as_=name))

    def submit_plan(self, worker: str, target: str, order: str, module: bytes) -> PlanTask:
        """Have a worker make a plan, once it is free."""
        return PlanTask(self._submit(make_plan, order, module, to=worker, on=target, as_="plan"))

    def _submit(self, work: Callable[..., Any], *given: Any, to: str, on: str, as_: str) -> Any:
        """Submit a task to a worker, which times for one target and runs nothing else then."""
        return self._connected().submit(
            work,
            *given,
            key=f"{as_}-{time.time_ns()}",
            workers=[to],
            resources={TIMING: 1.0, on: 1.0},
            pure=False,
            retries=0,
        )

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
