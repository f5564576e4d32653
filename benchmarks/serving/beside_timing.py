"""Whether requests disturb what is being timed, and how long requests wait meanwhile.

    python -m benchmarks.serving.beside_timing [--rate 50] [--rounds 100] [--problem PROBLEM]

The same schedules are timed by one process, in turns with and without a service that answers so
many requests a second on the other processors: scripts with and without their tags, look-ups of 20
problems, lists. The client runs there too. A row has the ratio of each schedule's medians, with
over without, and their mean; then the times of the requests in milliseconds.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import fmean, median, quantiles, stdev

import httpx

from benchmarks.measuring.neighbour import compare
from benchmarks.report import conditions
from benchmarks.serving.fetching import store_of
from benchmarks.serving.service_process import ServiceProcess
from benchmarks.serving.store import problem
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.system.children import child_command, child_environment

SCRIPTS = 100
SETTLE_S = 0.05
PROBLEM = "matmul:m=256,n=256,k=256,dtype=f32"


class Load:
    """A client that asks a service on some processors, until it is held."""

    def __init__(self, url: str, rate: float, times: Path, processors: set[int]) -> None:
        self._process = subprocess.Popen(
            child_command(
                "benchmarks.serving.beside_timing", f"--load={url}", f"--rate={rate}",
                f"--times={times}",
            ),
            env=child_environment(),
        )  # fmt: skip
        os.sched_setaffinity(self._process.pid, processors)
        while not (times.exists() and times.stat().st_size):
            assert self._process.poll() is None, "the client ended"
            time.sleep(0.05)

    def hold(self) -> None:
        """Ask nothing, once the present request is answered."""
        self._process.send_signal(signal.SIGUSR1)
        time.sleep(SETTLE_S)

    def go_on(self) -> None:
        """Ask."""
        self._process.send_signal(signal.SIGUSR2)
        time.sleep(SETTLE_S)

    def close(self) -> None:
        """End."""
        self._process.kill()
        self._process.wait()


def ask_for_ever(url: str, rate: float, times: Path) -> None:
    """What the client does; each request's milliseconds go to a file."""
    rng, tags, asking = random.Random(0), dict[str, str](), threading.Event()
    asking.set()
    signal.signal(signal.SIGUSR1, lambda *_: asking.clear())
    signal.signal(signal.SIGUSR2, lambda *_: asking.set())
    with httpx.Client(base_url=url, timeout=30) as http, times.open("a", buffering=1) as file:
        due = time.perf_counter()
        while True:
            while not asking.is_set():
                time.sleep(SETTLE_S / 10)
            due = max(due + 1 / rate, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))
            begin = time.perf_counter()
            ask(http, rng, tags).raise_for_status()
            file.write(f"{1e3 * (time.perf_counter() - begin):.3f}\n")


def ask(http: httpx.Client, rng: random.Random, tags: dict[str, str]) -> httpx.Response:
    """One request."""
    kind = rng.random()
    if kind < 0.1:
        asked = [str(problem(n)) for n in rng.sample(range(1, 2 * SCRIPTS), 20)]
        return http.post("/v1/schedules/lookup", json={"problems": asked})
    if kind < 0.3:
        return http.get(rng.choice(["/v1/jobs?limit=20", "/v1/trials?limit=20", "/v1/targets"]))
    key = problem(rng.randrange(1, SCRIPTS + 1)).key
    headers = {"If-None-Match": tags[key]} if key in tags and rng.random() < 0.5 else {}
    answer = http.get(f"/v1/schedules/{key}/script", headers=headers)
    tags[key] = answer.headers["ETag"]
    return (
        answer
        if answer.status_code != httpx.codes.NOT_MODIFIED
        else httpx.Response(200, request=answer.request)
    )


def measure(place: Path, rate: float, rounds: int, wanted: Problem) -> None:
    """Print both tables."""
    url, times = f"sqlite:///{place / 'store.db'}", place / "times.txt"
    store_of(url, SCRIPTS)
    with ServiceProcess(url) as service:

        def loaded(_problem: Problem, processors: set[int]) -> Load:
            os.sched_setaffinity(service.process.pid, processors)
            return Load(service.url, rate, times, processors)

        found = compare(wanted, rounds, loaded)
    ratios = [ratio for ratio, *_ in found]
    shown = " ".join(f"{ratio:.4f}" for ratio in ratios)
    print(f"timings, with/without {rate:g} requests a second: {shown}; "
          f"mean {fmean(ratios):.4f} +- {stdev(ratios):.4f}")  # fmt: skip
    ms = [float(line) for line in times.read_text().split()]
    print(f"{len(ms)} requests: median {median(ms):.1f} ms, p99 {quantiles(ms, n=100)[-1]:.1f} ms, "
          f"most {max(ms):.1f} ms")  # fmt: skip


def main() -> None:
    """Measure, or be the client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--problem", default=PROBLEM)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--times", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        ask_for_ever(options.load, options.rate, options.times)
    print(conditions())
    with tempfile.TemporaryDirectory() as name:
        wanted = parse_problem(options.problem)
        measure(Path(name), options.rate, options.rounds, wanted)


if __name__ == "__main__":
    sys.exit(main())
