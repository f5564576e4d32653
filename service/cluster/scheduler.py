"""Dask's scheduler, and how Dask is set up here: for few long tasks, on undisturbed machines.

Dask is imported inside functions: the service's own process never needs it.
"""

import asyncio
import logging
import signal
from importlib import import_module
from typing import Any

from tilewise.service.errors import AddressError, WorkerError

INSTALL = "install tilewise[cluster]"
UNUSABLE = (OSError, TimeoutError, RuntimeError, TypeError, ValueError)
"""What Dask raises where a connection fails, or where TLS is wanted and not configured."""

# `docs/design/cluster.md` has the reasons.
SETTINGS: dict[str, Any] = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-ttl": "30s",
    "distributed.scheduler.no-workers-timeout": "60s",
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "5s",
    "distributed.diagnostics.nvml": False,
    "distributed.comm.timeouts.connect": "5s",
}


def configure(level: int = logging.CRITICAL) -> None:
    """Configure Dask in this process; its own TLS configuration stays.

    `level` is of Dask's own messages: drivers and workers report lost connections themselves.
    Raises WorkerError if Dask is not installed.
    """
    try:
        import dask

        import_module("distributed")  # brings the defaults that are set below
    except ImportError as error:
        raise WorkerError(f"a cluster needs Dask ({error}); {INSTALL}") from error
    dask.config.set(SETTINGS)
    logging.getLogger("distributed").setLevel(level)


log = logging.getLogger(__name__)


def run_scheduler(host: str, port: int, *, uses_tls: bool = False) -> None:
    """Serve until SIGINT or SIGTERM; port 0 takes any free one.

    Raises WorkerError if Dask is not installed, AddressError if the address is taken or the TLS
    certificate is missing.
    """
    configure(logging.WARNING)
    asyncio.run(_serve(host, port, "tls" if uses_tls else "tcp"))


async def _serve(host: str, port: int, protocol: str) -> None:
    from distributed import Scheduler

    stopping = ends_at_signal()
    scheduler = Scheduler(
        host=host, port=port, protocol=protocol, dashboard=False, dashboard_address=":0"
    )
    try:
        await scheduler
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise AddressError(
            f"{protocol}://{host}:{port} cannot be served: {error.__cause__ or error}"
        ) from error
    log.info("scheduler at %s (Ctrl-C to stop)", scheduler.address)
    try:
        await stopping.wait()
    finally:
        await scheduler.close()


def ends_at_signal() -> asyncio.Event:
    """Return an event that is set when this process receives SIGINT or SIGTERM."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    return stopping
