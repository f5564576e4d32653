"""A service in a process of its own, for benchmarks that ask it over a socket.

    python -m benchmarks.serving.service_process URL HANDLE WORKERS TOOLCHAIN

serves on a listening socket that it inherits under that number; `ServiceProcess` starts it.
"""

import socket
import subprocess
import sys
import time
from types import TracebackType

import httpx

STARTUP_S = 60.0
TOOLCHAIN = "benchmark"


class ServiceProcess:
    """`python -m benchmarks.serving.service_process` on a free port, between `with` and its end.

    Args:
        url: of the database.
        workers: jobs at once.
        toolchain: what counts as present; empty is the real one.
    """

    def __init__(self, url: str, workers: int = 0, toolchain: str = TOOLCHAIN) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        handle = self._listening.fileno()
        command = [sys.executable, "-m", "benchmarks.serving.service_process", url, str(handle),
                   str(workers), toolchain]  # fmt: skip
        self.process = subprocess.Popen(command, pass_fds=[handle])

    def __enter__(self) -> "ServiceProcess":
        end = time.monotonic() + STARTUP_S
        while time.monotonic() < end:
            assert self.process.poll() is None, "the service ended"
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).is_success:
                    return self
            except httpx.TransportError:
                time.sleep(0.05)
        raise TimeoutError("the service did not get ready")

    def require_alive(self) -> None:
        """AssertionError unless the process still runs."""
        assert self.process.poll() is None, "the service ended"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.terminate()
        self.process.wait(30)
        self._listening.close()


def main(url: str, listening: str, workers: str, toolchain: str) -> None:
    """Serve on a socket that is inherited."""
    from tilewise.service.app import create_app
    from tilewise.service.server import Server
    from tilewise.service.settings import Settings

    app = create_app(Settings(db=url), int(workers), toolchain=toolchain or None)
    Server(app, log_level="warning").run(sockets=[socket.socket(fileno=int(listening))])


if __name__ == "__main__":
    main(*sys.argv[1:])
