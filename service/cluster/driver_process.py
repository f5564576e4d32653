"""The driver of a service as a child process that is restarted when it dies."""

import logging
import threading
from collections.abc import Sequence

from tilewise.service.settings import Settings
from tilewise.service.workers.completion import end, reason_of, start

POLL_S = 0.5
PAUSE_S = 2.0

log = logging.getLogger(__name__)


class DriverProcess:
    """Drive a cluster in a child, since Dask must not be in the service's memory.

    `arguments` are passed to `tilewise.service.workers` for every job.
    """

    def __init__(self, settings: Settings, arguments: Sequence[str] = ()) -> None:
        self._settings, self._arguments = settings, tuple(arguments)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether a driver is kept alive."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the driver."""
        self._thread.start()

    def wake(self) -> None:
        """Do nothing: the driver polls several times a second."""

    def stop(self) -> None:
        """End the driver, which returns its jobs to the queue."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        names = (
            *("db", "scheduler", "service_url", "unserved_seconds", "log_level", "log_format"),
            *("recheck_hours", "recheck_seconds"),
        )
        environment = {
            f"TILEWISE_{name.upper()}": str(getattr(self._settings, name)) for name in names
        }
        while not self._stopping.is_set():
            child = start("tilewise.service.cluster", *self._arguments, environment=environment)
            while child.poll() is None and not self._stopping.wait(POLL_S):
                pass
            if child.returncode is None:
                end(child)
                return
            log.error("the driver has ended: %s; it is started again", reason_of(child.returncode))
            self._stopping.wait(PAUSE_S)
