"""A worker of a cluster, which joins the scheduler again after a loss."""

import asyncio
import logging
import tempfile
from typing import TYPE_CHECKING, Any

from tilewise.service.cluster.facts import KEY, Facts
from tilewise.service.cluster.scheduler import UNUSABLE, configure, ends_at_signal
from tilewise.service.errors import UnreachableError
from tilewise.service.faults import Faults

if TYPE_CHECKING:
    from distributed import Worker

PAUSE_S = 0.5
TOLD_S = 15.0

log = logging.getLogger(__name__)


def run_worker(scheduler: str, facts: Facts, host: str | None = None) -> None:
    """Run jobs, one at a time, until SIGINT or SIGTERM.

    `host` is the address under which others reach this worker; by default it is detected. Raises
    WorkerError if Dask is not installed.
    """
    configure()
    asyncio.run(_stay(scheduler, facts, host))


async def _stay(scheduler: str, facts: Facts, host: str | None) -> None:
    stopping, faults = ends_at_signal(), Faults(log)
    with tempfile.TemporaryDirectory(prefix="tilewise-worker-") as folder:
        while not stopping.is_set():
            # Dask's workers end when their scheduler does, and never come back by themselves.
            with faults.guard(f"scheduler {scheduler}"):
                await _join(_worker(scheduler, facts, host, folder), scheduler, stopping)
            await _first_of(stopping.wait(), asyncio.sleep(PAUSE_S))


def _worker(scheduler: str, facts: Facts, host: str | None, folder: str) -> "Worker":
    from distributed import Worker

    return Worker(
        scheduler,
        nthreads=1,
        host=host,
        resources=facts.resources,
        startup_information={KEY: facts.text},
        memory_limit=0,
        local_directory=folder,
        dashboard=False,
    )


async def _join(worker: "Worker", scheduler: str, stopping: asyncio.Event) -> None:
    """Be a worker until the scheduler goes, or this process is to stop."""
    telling = asyncio.ensure_future(_tell_wait(scheduler))
    try:
        await _first_of(_registered(worker, scheduler), stopping.wait())
        telling.cancel()
        if not stopping.is_set():
            log.info("worker %s of %s", worker.address, scheduler)
            await _first_of(worker.finished(), stopping.wait())
    finally:
        telling.cancel()
        await worker.close(reason="tilewise-worker-ends")


async def _tell_wait(scheduler: str) -> None:
    """Say now and then that nothing answers; Dask would wait in silence."""
    while True:
        await asyncio.sleep(TOLD_S)
        log.warning("scheduler %s does not let this worker join yet", scheduler)


async def _registered(worker: "Worker", scheduler: str) -> None:
    try:
        await worker
    except UNUSABLE as error:
        why = error.__cause__ or error
        raise UnreachableError(f"it does not let this worker join: {why}") from error


async def _first_of(*waits: Any) -> None:
    """Wait for the first of some things, and for no other; raise what it raises."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for one in tasks:
            one.cancel()
