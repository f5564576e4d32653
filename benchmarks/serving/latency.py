"""What a cached script costs to fetch, against a bare route that gives the same bytes.

    python -m benchmarks.serving.latency [--rounds 20] [--seconds 1]

One process on one processor serves Tilewise and, beside it, an application of the framework
with nothing but a route that returns the script from memory. Clients on the other processor
fetch one after the other, in turns: the bare route, the script, and the script by a client that
has it (304). A row gives the rate, what the serving process spent on a request, and the ratio of
the rates of the same round, as medians with their least and largest. The last line has the times of
answers at half the script's rate, each from the moment at which its question was due.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

import httpx
import psutil
import uvicorn
from fastapi import FastAPI, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from benchmarks.report import conditions
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.children import child_command, child_environment
from tilewise.service.app import create_app
from tilewise.service.settings import Settings

PROBLEM = "matmul:m=64,n=48,k=32,dtype=f32"
BARE = "/bare"
CONNECTIONS = 8
STARTUP_S = 60


class Beside:
    """The bare application at one path, Tilewise at all others."""

    def __init__(self, bare: ASGIApp, tilewise: ASGIApp) -> None:
        self._bare, self._tilewise = bare, tilewise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._bare if scope.get("path") == BARE else self._tilewise
        await app(scope, receive, send)


def serve(url: str, port: int, text: str) -> None:
    """Serve both on the first processor."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    bare = FastAPI()
    body = Path(text).read_bytes()

    @bare.get(BARE)
    async def give() -> Response:
        return Response(body, media_type="text/x-mlir")

    app = Beside(bare, create_app(Settings(db=url), 0))
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


class Loader:
    """Connections that each fetch the same thing again and again."""

    def __init__(self, port: int, path: str, etag: str | None = None) -> None:
        tag = f"If-None-Match: {etag}\r\n" if etag else ""
        self._request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{tag}\r\n".encode()
        self._port = port
        self._size, self.first = self._fetch_one()

    def rate(self, seconds: float) -> float:
        """Answers a second."""
        done = [0] * CONNECTIONS
        begin = time.perf_counter()
        threads = [
            threading.Thread(target=self._repeat, args=(done, index, begin + seconds))
            for index in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done) / (time.perf_counter() - begin)

    def with_speed_factor(self, rate: float, seconds: float) -> list[float]:
        """Milliseconds of answers, from the moment at which each question was due."""
        taken: list[float] = []
        begin = time.perf_counter() + 0.1
        threads = [
            threading.Thread(
                target=self._at_pace,
                args=(taken, begin + index / rate, CONNECTIONS / rate, seconds),
            )
            for index in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return taken

    def _at_pace(self, taken: list[float], due: float, pause: float, seconds: float) -> None:
        end = due + seconds
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            while due < end:
                time.sleep(max(0.0, due - time.perf_counter()))
                self._ask(connection)
                taken.append(1e3 * (time.perf_counter() - due))
                due += pause

    def _ask(self, connection: socket.socket) -> None:
        connection.sendall(self._request)
        left = self._size
        while left:
            left -= len(connection.recv(left))

    def _repeat(self, done: list[int], index: int, end: float) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            while time.perf_counter() < end:
                self._ask(connection)
                done[index] += 1

    def _fetch_one(self) -> tuple[int, bytes]:
        """Bytes of an answer, which are the same each time, and its first line."""
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.sendall(self._request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        closing = len(b"connection: close\r\n")
        return len(answer) - closing, answer.partition(b"\r\n")[0]


def tuned(folder: Path) -> tuple[str, str]:
    """A database with one schedule, and its script."""
    url = f"sqlite:///{folder / 'serving.db'}"
    for command in (["tune", PROBLEM, "--trials", "8"], ["script", PROBLEM]):
        done = subprocess.run(
            child_command("tilewise", *command, "--db", url),
            env=child_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
    return url, done.stdout


def wait_for(answers: Callable[[], bool]) -> None:
    """Wait until the server is there."""
    end = time.monotonic() + STARTUP_S
    while not answers():
        if time.monotonic() > end:
            raise SystemExit("the server did not start")
        time.sleep(0.1)


def measure(port: int, server: psutil.Process, rounds: int, seconds: float) -> None:
    """Print the table."""
    path = f"/v1/schedules/{parse_problem(PROBLEM).key}/script"
    etag = httpx.get(f"http://127.0.0.1:{port}{path}").headers["ETag"]
    loaders = {
        "bare route": Loader(port, BARE),
        "script, 200": Loader(port, path),
        "script, 304": Loader(port, path, etag),
    }
    for name, loader in loaders.items():
        expected = b"304" if name.endswith("304") else b"200"
        assert expected in loader.first, (name, loader.first)
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    costs: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(rounds):
        for name, loader in loaders.items():
            before = sum(server.cpu_times()[:2])
            rates[name].append(loader.rate(seconds))
            spent = sum(server.cpu_times()[:2]) - before
            costs[name].append(spent / (rates[name][-1] * seconds) * 1e6)
    print(f"{'':14}{'per second':>12}{'processor us':>14}{'of the bare route':>26}")
    for name in loaders:
        ratios = [a / b for a, b in zip(rates[name], rates["bare route"], strict=True)]
        spread = f"{median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
        print(f"{name:14}{median(rates[name]):12.0f}{median(costs[name]):14.0f}{spread:>26}")
    half = median(rates["script, 200"]) / 2
    ms = loaders["script, 200"].with_speed_factor(half, 5 * seconds)
    print(f"at half that rate, {half:.0f} a second: median {median(ms):.2f} ms, "
          f"p99 {quantiles(ms, n=100)[-1]:.2f} ms, most {max(ms):.2f} ms")  # fmt: skip


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Measure, or serve for the process that measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        url, port, text = options.serve
        serve(url, int(port), text)
        return
    processors = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        url, script = tuned(Path(name))
        text, port = Path(name) / "script.mlir", free_port()
        text.write_text(script)
        print(conditions())
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.serving.latency",
                "--serve",
                url,
                str(port),
                str(text),
            ]
        )
        os.sched_setaffinity(0, {processors[-1]})
        try:
            wait_for(lambda: _answers(port))
            measure(port, psutil.Process(child.pid), options.rounds, options.seconds)
        finally:
            child.terminate()
            child.wait()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz").is_success
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    main()
