"""How long a light request waits while heavy ones are served.

    python -m benchmarks.serving.starving [--keys 8] [--requests 48] [--posts 60]

A service runs in a process of its own. Meanwhile /healthz is asked again and again: while nothing
else happens, while kernels of some keys are fetched by many clients at once, and while somebody
else holds the database's write lock and many clients POST. A row gives how the heavy requests
ended, after what time the last one did, and the median and the longest wait for /healthz.
"""

import argparse
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import median

import httpx

from benchmarks.report import conditions
from benchmarks.serving.latency import free_port, wait_for
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.children import child_command, child_environment

SQUARE = "matmul:m=32,n=32,k={},dtype=f32"
LIMIT_S = 120


def under(url: str, calls: list[Callable[[], int]]) -> None:
    """Print a row: the calls at once, and the waits for /healthz until the last has ended."""
    waits: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        with httpx.Client(timeout=LIMIT_S) as client:
            while not ended.is_set():
                begin = time.perf_counter()
                client.get(f"{url}/healthz")
                waits.append(time.perf_counter() - begin)
                time.sleep(0.02)

    watcher = threading.Thread(target=ask)
    watcher.start()
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(calls)) as threads:
        statuses = Counter(threads.map(lambda call: call(), calls))
    took = time.perf_counter() - begin
    ended.set()
    watcher.join()
    said = ", ".join(f"{n} x {status}" for status, n in sorted(statuses.items()))
    print(f"{said:24}{took:8.1f} s{median(waits) * 1e3:12.1f} ms{max(waits) * 1e3:12.1f} ms")


def rest() -> int:
    """Nothing, for a while."""
    time.sleep(2)
    return 0


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=8)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--posts", type=int, default=60)
    options = parser.parse_args()
    problems = [SQUARE.format(k) for k in range(1, options.keys + 1)]
    with tempfile.TemporaryDirectory() as name:
        file, port = Path(name) / "starving.db", free_port()
        environment = child_environment(TILEWISE_CACHE_DIR=name, TILEWISE_DB=f"sqlite:///{file}")
        for problem in problems:
            tune = child_command("tilewise", "tune", problem, "--trials", "2")
            subprocess.run(tune, env=environment, capture_output=True, check=True)
        service = subprocess.Popen(
            child_command("tilewise", "serve", "--port", str(port), "--workers", "0"),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            measure(f"http://127.0.0.1:{port}", file, problems, options)
        finally:
            service.terminate()
            service.wait()


def measure(url: str, file: Path, problems: list[str], options: argparse.Namespace) -> None:
    """Print the table."""
    wait_for(lambda: _answers(url))
    print(conditions())
    print(f"{'':24}{'last after':>10}{'/healthz':>15}{'at most':>15}")
    under(url, [rest])
    keys = [parse_problem(problem).key for problem in problems]
    paths = [f"{url}/v1/schedules/{keys[n % len(keys)]}/kernel" for n in range(options.requests)]
    under(url, [lambda path=path: _status("GET", path) for path in paths])
    bodies = [{"problem": f"matmul:m=8,n=8,k={k},dtype=f32"} for k in range(1, options.posts + 1)]
    with closing(sqlite3.connect(file, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        under(url, [lambda body=body: _status("POST", f"{url}/v1/jobs", body) for body in bodies])


def _status(method: str, url: str, body: dict[str, str] | None = None) -> int:
    return httpx.request(method, url, json=body, timeout=LIMIT_S).status_code


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").is_success
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    sys.exit(main())
