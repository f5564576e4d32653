"""A real service process with the fakes for a search, and what the tests ask of it."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from fastapi import FastAPI

from tests.service import fakes
from tests.short_timings import python_path
from tilewise.kernels.system.children import child_command, child_environment
from tilewise.service.app import create_app
from tilewise.service.server import Server
from tilewise.service.settings import Settings

STARTUP_S = 120
ROOT = Path(__file__).parents[2]
FAKE_PROVER = "tests.service.fakes:prove"


class ServiceProcess:
    """A service in a process of its own, on a port that it inherits and nobody else can take."""

    def __init__(
        self, url: str, tuner: str, log: Path | None = None, prover: str = FAKE_PROVER
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = int(listening.getsockname()[1])
            number = listening.fileno()
            command = child_command("tests.service.processes", url, str(number), tuner, prover)
            logged = {fakes.LOG: str(log)} if log else {}
            env = child_environment(PYTHONPATH=python_path(ROOT), **logged)
            self._process = subprocess.Popen(command, env=env, pass_fds=[number])
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=10)
        wait_until(self._answers, STARTUP_S)

    def _answers(self) -> bool:
        assert self._process.poll() is None, "the service ended"
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    @property
    def process(self) -> psutil.Process:
        """The service itself."""
        return psutil.Process(self._process.pid)

    @property
    def memory(self) -> int:
        """Resident bytes of the process itself."""
        return self.process.memory_info().rss

    def workers(self) -> list[psutil.Process]:
        """The worker processes."""
        return self.process.children(recursive=True)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        self.client.close()

    def stop(self) -> int:
        """SIGTERM; gives the exit status."""
        self._process.terminate()
        status = self._process.wait(30)
        self.client.close()
        return status


@contextmanager
def serving(app: FastAPI, **how: Any) -> Iterator[int]:
    """Serve an application from a thread; yield the port."""
    server = Server(app, **how)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        wait_until(lambda: server.started or not thread.is_alive())
        assert thread.is_alive(), "the server ended"
        try:
            yield int(listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(30)
        assert not thread.is_alive()


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition; AssertionError when it does not come about."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def main(url: str, listening: str, tuner: str, prover: str) -> None:
    """Serve with these for a search and a proof, as `tilewise.service.server.serve` does."""
    arguments = (f"--tuner={tuner}", f"--prover={prover}")
    app = create_app(Settings(db=url), 1, worker_arguments=arguments)
    Server(app, log_level="warning").run(sockets=[socket.socket(fileno=int(listening))])


if __name__ == "__main__":
    main(*sys.argv[1:])
