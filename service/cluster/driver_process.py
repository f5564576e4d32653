"""The driver beside a service: a child that is started again when it dies."""

import logging
import os
import subprocess
import threading
from collections.abc import Sequence

from tilewise.kernels.system.children import child_command, child_environment
from tilewise.service.settings import Settings
from tilewise.service.workers.completion import end, reason_of

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
        """Do nothing: the driver looks several times a second."""

    def stop(self) -> None:
        """End the driver, which gives its jobs back to the queue."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            child = self._spawn()
            while child.poll() is None and not self._stopping.wait(POLL_S):
                pass
            if child.returncode is None:
                end(child)
                return
            log.error("the driver has ended: %s; it is started again", reason_of(child.returncode))
            self._stopping.wait(PAUSE_S)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        # URLs may hold a password, and a command line is public.
        told = {
            "TILEWISE_DB": self._settings.db,
            "TILEWISE_SCHEDULER": self._settings.scheduler,
            "TILEWISE_SERVICE_URL": self._settings.service_url,
            "TILEWISE_UNSERVED_SECONDS": str(self._settings.unserved_seconds),
            "TILEWISE_LOG_LEVEL": self._settings.log_level,
            "TILEWISE_LOG_FORMAT": self._settings.log_format,
        }
        return subprocess.Popen(
            child_command("tilewise.service.cluster", f"--parent={os.getpid()}", *self._arguments),
            env=child_environment(**told),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
