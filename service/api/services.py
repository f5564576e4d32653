"""The parts that routes share: sessions, this machine, the toolchain, the workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, cast

from fastapi import Depends, Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from tilewise.kernels.footprint import check_memory
from tilewise.kernels.problem import Problem
from tilewise.kernels.target.model import check_known
from tilewise.service.api.access.tokens import TokenBook
from tilewise.service.api.events.feeds import Feeds
from tilewise.service.api.executors import PATIENCE_S, BoundedExecutor
from tilewise.service.api.single_flight import SingleFlight
from tilewise.service.cluster.driver_process import DriverProcess
from tilewise.service.db import checked
from tilewise.service.db.changes import Changes
from tilewise.service.db.session import Sessions
from tilewise.service.host.machine import MachineInfo
from tilewise.service.results import kernels
from tilewise.service.telemetry.metrics import Metrics, StoredMetrics
from tilewise.service.workers.pool import Pool

READERS, WRITERS = 16, 4
OTHERS = 4  # connections of what is no request: the pool of workers, and what is being proven


class Executors:
    """The threads of requests for reads, writes and health probes."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self.reads = BoundedExecutor("reads", READERS, patience_s)
        self.writes = BoundedExecutor("writes", WRITERS, patience_s)
        self.probes = BoundedExecutor("probes", 1, patience_s)


@dataclass(frozen=True)
class Services:
    """The parts of a running service.

    `prober` is an engine of its own, so that probes do not wait behind requests. `pool` runs the
    jobs, here or in a cluster (`has_cluster`); None if nothing does. `feeds` are events of jobs and
    plans, `overviews` those of dashboards. `kernels`, `proofs` and `modules` hold slow work.
    `jobs_in_flight` limits the queued and running jobs of one token; 0 is no limit.
    """

    engine: Engine
    prober: Engine
    sessions: Sessions
    machine: MachineInfo
    toolchain: str
    pool: Pool | DriverProcess | None
    has_cluster: bool
    executors: Executors
    kernels: SingleFlight
    proofs: SingleFlight
    modules: SingleFlight
    feeds: Feeds
    overviews: Feeds
    changes: Changes
    tokens: TokenBook
    run_tokens: TokenBook
    metrics: Metrics
    stored_metrics: StoredMetrics
    jobs_in_flight: int

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Return a read session on a database of the right schema; raise DatabaseError."""
        with self.metrics.timed_database("read"), checked.reading(self.sessions) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Return a transaction on a database of the right schema; raise DatabaseError."""
        with self.metrics.timed_database("write"), checked.writing(self.sessions) as session:
            yield session

    def require_served(self, target: str) -> str:
        """Return the canonical form of a target that can be timed, here or in a cluster.

        Raises TargetError if it is malformed or, without a cluster, not one of this machine.
        Whether a worker of the cluster serves it is only known once the job waits.
        """
        if self.has_cluster:
            check_known(target)
            return self.machine.canonical_target(target)
        return self.machine.require_served(target)

    def check_memory(self, problem: Problem) -> None:
        """Raise ProblemError where a problem does not fit into this machine, which would time it.

        In a cluster the worker's machine finds out.
        """
        if not self.has_cluster:
            check_memory(problem, self.machine.memory_bytes)

    async def code(self, source: str, form: str) -> str:
        """Return a form of the code of a source, from the cache or made now.

        Raises what `kernels.kernel_module` does, and UnfinishedError if that takes too long.
        """
        tag = kernels.kernel_tag(source, self.toolchain, form)
        text = await self.executors.reads.run(partial(kernels.cached_module, tag))
        if text is None:
            shared = self.kernels if form in (kernels.MODULE, kernels.DOCUMENT) else self.proofs
            text = await shared.make(tag, partial(kernels.kernel_module, tag, source, form))
        return text

    def wake(self) -> None:
        """Notify the workers of new work."""
        if self.pool is not None:
            self.pool.wake()


def _services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


ServicesDep = Annotated[Services, Depends(_services)]
