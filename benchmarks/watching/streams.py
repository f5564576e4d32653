"""Whether open dashboards disturb what is being timed, and what they cost the service.

    python -m benchmarks.watching.streams [--dashboards 200] [--rounds 60] [--problem PROBLEM]

The same schedules are timed by one process, in turns with and without a service on the other
processors that so many dashboards look at: half of them hold the stream of the overview, half that
of one job. The job gets a trial every tenth of a second meanwhile, so that every stream has news.
In the turns without, service and dashboards are stopped. The first row has the ratio of each
schedule's medians, with over without; the second the service's memory in MiB, after its first
turn and after its last, and how many events came.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev

import httpx
import psutil

from benchmarks.measuring.neighbour import compare
from benchmarks.report import conditions
from benchmarks.serving.fetching import store_of
from benchmarks.serving.service_process import ServiceProcess
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.system.children import child_command, child_environment
from tilewise.service.db import make_engine
from tilewise.service.db.session import write_connection

PROBLEM = "matmul:m=256,n=256,k=256,dtype=f32"
SCHEDULES = 20
EVERY_S = 0.1
RUNNING = "UPDATE jobs SET state = 'running', owner = 'h:1:1', trials = 1000000 WHERE id = 1"
NAMES = (
    "job_id, hash, steps, params, state, origin, failure, message, gflops, low, high, time_us, "
    "samples, speed_factor, rejected, compile_s, max_error, created_at"
)
TRIAL = f"""INSERT INTO trials ({NAMES}, number) SELECT {NAMES}, (SELECT max(number) + 1 FROM trials
WHERE job_id = 1) FROM trials WHERE job_id = 1 AND number = 0"""


class Dashboards:
    """A service and those who look at it, on some processors, until they are held."""

    def __init__(self, place: Path, many: int, processors: set[int]) -> None:
        self._url = f"sqlite:///{place / 'store.db'}"
        self._events = place / "events.txt"
        store_of(self._url, SCHEDULES)
        self._service = ServiceProcess(self._url).__enter__()
        child = child_command(
            "benchmarks.watching.streams", f"--look={self._service.url}", f"--dashboards={many}",
            f"--store={self._url}", f"--events={self._events}",
        )  # fmt: skip
        self._clients = subprocess.Popen(child, env=child_environment())
        self._processes = (self._service.process.pid, self._clients.pid)
        for process in self._processes:
            os.sched_setaffinity(process, processors)
        while not self._events.exists():
            assert self._clients.poll() is None, "the dashboards ended"
            time.sleep(0.1)
        self.memory: list[int] = []

    def hold(self) -> None:
        """Be still."""
        self.memory.append(psutil.Process(self._service.process.pid).memory_info().rss)
        for process in self._processes:
            os.kill(process, signal.SIGSTOP)

    def go_on(self) -> None:
        """Look."""
        for process in self._processes:
            os.kill(process, signal.SIGCONT)

    @property
    def events(self) -> int:
        """How many have come to all dashboards."""
        return int(self._events.read_text() or 0)

    def close(self) -> None:
        """End."""
        self.go_on()
        self._clients.kill()
        self._clients.wait()
        self._service.__exit__(None, None, None)


async def look(url: str, many: int, store: str, events: Path) -> None:
    """What the dashboards do, and the job that they look at."""
    came = 0

    async def follow(path: str) -> None:
        nonlocal came
        async with httpx.AsyncClient(base_url=url, timeout=None) as client:
            while True:
                async with client.stream("GET", path) as answer:
                    async for line in answer.aiter_lines():
                        came += line.startswith("event:")

    async def search() -> None:
        engine = make_engine(store)
        while True:
            with write_connection(engine) as connection:
                connection.exec_driver_sql(TRIAL)
            events.write_text(str(came))
            await asyncio.sleep(EVERY_S)

    engine = make_engine(store)
    with write_connection(engine) as connection:
        connection.exec_driver_sql(RUNNING)
    paths = ["/live", "/v1/jobs/1/events"]
    async with asyncio.TaskGroup() as group:
        for number in range(many):
            group.create_task(follow(paths[number % 2]))
        group.create_task(search())


def measure(place: Path, many: int, rounds: int, wanted: Problem) -> None:
    """Print both rows."""
    made: list[Dashboards] = []

    def looked_at(_problem: Problem, processors: set[int]) -> Dashboards:
        made.append(Dashboards(place, many, processors))
        return made[0]

    found = compare(wanted, rounds, looked_at)
    ratios = [ratio for ratio, *_ in found]
    shown = " ".join(f"{ratio:.4f}" for ratio in ratios)
    print(f"timings, with/without {many} dashboards: {shown}; "
          f"mean {fmean(ratios):.4f} +- {stdev(ratios):.4f}")  # fmt: skip
    memory = [size / 1024**2 for size in made[0].memory]
    print(f"memory {memory[1]:.0f} -> {memory[-1]:.0f} MiB; {made[0].events} events came")


def main() -> None:
    """Measure, or be the dashboards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dashboards", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--problem", default=PROBLEM)
    for hidden in ("--look", "--store"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--events", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.look:
        asyncio.run(look(options.look, options.dashboards, options.store, options.events))
        return
    print(conditions())
    with tempfile.TemporaryDirectory() as name:
        wanted = parse_problem(options.problem)
        measure(Path(name), options.dashboards, options.rounds, wanted)


if __name__ == "__main__":
    sys.exit(main())
