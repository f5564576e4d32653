"""A Dask scheduler, set up for Tilewise."""

import asyncio
import logging
import signal

from tilewise.service.cluster.configuration import configure
from tilewise.service.errors import AddressError

log = logging.getLogger(__name__)


def run_scheduler(host: str, port: int, *, uses_tls: bool = False) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        host: address to listen on.
        port: likewise; 0 takes any.
        uses_tls: whether only TLS is spoken, with what Dask's own configuration says of it.

    Raises:
        WorkerError: Dask is not installed.
        AddressError: the address cannot be had, or there is no certificate for TLS.
    """
    configure(logging.WARNING)
    asyncio.run(_serve(host, port, "tls" if uses_tls else "tcp"))


async def _serve(host: str, port: int, protocol: str) -> None:
    from distributed import Scheduler

    ending = ends_at_signal()
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
        await ending.wait()
    finally:
        await scheduler.close()


def ends_at_signal() -> asyncio.Event:
    """What is set once this process is asked to end."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for asked in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(asked, ending.set)
    return ending
