"""Many simulated workers in few processes: what a service and a driver keep busy.

    python -m tests.service.cluster.many_workers --workers 200 --jobs 64 --trial 1.0

A simulated worker is one of Dask's, and says all that a run says; its trials are sleeps, and its
run is a thread in place of a process. Service, driver and scheduler are the real ones.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from tests.service import fakes
from tests.service.cluster import tuners
from tests.service.cluster.farm import Farm
from tests.service.conftest import PROBLEM
from tests.service.processes import wait_until
from tilewise.kernels.problem import parse_problem
from tilewise.search.progress import Phase
from tilewise.search.records import Best, TuneResult
from tilewise.service.cluster import task
from tilewise.service.cluster.facts import facts_of_this_machine
from tilewise.service.cluster.scheduler import configure, ends_at_signal
from tilewise.service.cluster.worker import _worker
from tilewise.service.errors import LeaseLostError
from tilewise.service.host.machine import MachineInfo, examine
from tilewise.service.host.process_identity import me
from tilewise.service.runs.http import HttpKeeper, RunCalls
from tilewise.service.runs.keeper import Order

PROCESSES = 2
HERE = "127.0.0.1"


def simulated_run(
    trial_s: float,
    job_id: int,
    token: str,
    service: str,
    toolchain: str,
    machine: MachineInfo | None = None,
    on_trial: Callable[[Order, int], None] | None = None,
) -> None:
    """A run in this thread; another asks whether it goes on, as the real one's worker does.

    Args:
        trial_s: seconds of a trial.
        job_id, token, service, toolchain: as `run_offer` is given them.
        machine: that it says it ran on; None examines this one.
        on_trial: told of each trial that was acknowledged.
    """
    calls, asks = RunCalls(service, job_id, token), RunCalls(service, job_id, token)
    over = threading.Event()

    def ask() -> None:
        while not over.wait(task.BEAT_S):
            asks.goes_on()

    threading.Thread(target=ask, daemon=True).start()
    try:
        owner = me() if machine is None else f"{machine.host}:{os.getpid()}:1"
        keeper = HttpKeeper(calls, owner, toolchain, job_id)
        keeper.note(Phase("search", 0, keeper.order.request.trials))
        problem = parse_problem(keeper.order.problem)
        for number in range(keeper.order.request.trials):
            time.sleep(trial_s)
            keeper.trials.add(fakes.trial_of(problem, number))
            if on_trial is not None:
                on_trial(keeper.order, number)
        best = Best(
            fakes.trial_of(problem, 0).schedule, fakes.measurement(50.0, problem.flops), 100.0
        )
        keeper.done(TuneResult(best, (), 1.0, True), best, [], machine or examine())
    except LeaseLostError:
        return
    finally:
        over.set()


async def simulate(scheduler: str, count: int, trial_s: float) -> None:
    """So many workers in this process, until it is asked to end."""
    configure()

    def run_offer(job_id, token, service, toolchain, arguments=()):
        simulated_run(trial_s, job_id, token, service, toolchain)

    task.run_offer = run_offer  # Dask finds it by its name
    facts, folder = facts_of_this_machine(measures_peaks=False), tempfile.mkdtemp()
    ending = ends_at_signal()
    made = [
        _worker(
            scheduler,
            replace(facts, owner=f"simulated-{os.getpid()}-{number}:1:1"),
            "127.0.0.1",
            folder,
        )
        for number in range(count)
    ]
    await asyncio.gather(*made)
    await ending.wait()


class ManyFarm(Farm):
    """A farm whose workers are simulated."""

    def simulate(self, count: int, trial_s: float) -> None:
        self.commands["many"] = [
            "tests.service.cluster.many_workers",
            f"--simulate={count}",
            f"--trial={trial_s}",
            f"--scheduler={self.scheduler}",
        ]
        for number in range(PROCESSES):
            self.start(f"many-{number}")


def measure(workers: int, jobs: int, trials: int, trial_s: float) -> str:
    """One line: how busy the workers were, and what the others' processors did meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="tilewise-many-"))
    farm = ManyFarm(folder, ["scheduler", "service", "driver"])
    try:
        farm.simulate(workers // PROCESSES, trial_s)
        wait_until(lambda: f"{workers} workers" in _seen(farm), 300)
        names = [parse_problem(f"{PROBLEM},batch={n + 2}").canonical for n in range(jobs)]
        asked = [farm.ask(name, seed=tuners.STEADY, trials=trials) for name in names]
        wait_until(lambda: _timed(farm, asked) >= jobs, 300)
        first, began, spent = _timed(farm, asked), time.monotonic(), _spent(farm)
        wait_until(lambda: _timed(farm, asked) >= 0.9 * jobs * trials, 3600)
        took = time.monotonic() - began
        done = _timed(farm, asked) - first
        shares = {name: (now - spent[name]) / took for name, now in _spent(farm).items()}
        busy = done * trial_s / took / jobs
        told = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        return f"{trial_s:g} s a trial: {done / took:.0f} trials/s, {busy:.0%} busy; {told}\n"
    finally:
        farm.close()


def _seen(farm: Farm) -> str:
    try:
        return f"{len(farm.client.get('/v1/targets').json()['workers'])} workers"
    except Exception:
        return ""


def _timed(farm: Farm, jobs: Sequence[int]) -> int:
    """The trials of all jobs that are stored; a look costs the service little."""
    time.sleep(1.0)
    page = farm.client.get("/v1/jobs", params={"limit": len(jobs)}).json()["jobs"]
    return sum(job["trials"]["timed"] for job in page)


def _spent(farm: Farm) -> dict[str, float]:
    """Seconds of processor of each process."""
    found = {}
    for name, one in farm.processes.items():
        times = psutil.Process(one.pid).cpu_times()
        found[name] = times.user + times.system
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=64)
    parser.add_argument("--trials", type=int, default=30, help="of each job")
    parser.add_argument("--trial", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--simulate", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--scheduler", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.simulate:
        asyncio.run(simulate(options.scheduler, options.simulate, options.trial))
        return
    line = measure(options.workers, options.jobs, options.trials, options.trial)
    sys.stdout.write(line)


if __name__ == "__main__":
    main()
