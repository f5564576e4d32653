"""Jobs for several targets on simulated workers of several processors: who has tried what?

    python -m tests.service.cluster.mixed_targets --jobs 100 --trials 10

A simulated worker is one of Dask's (`many_workers`) that says it has another processor. Service,
driver and scheduler are the real ones. Halfway a process with half of the workers is killed and
started again; a run that dies with it is tried again from its first trial. Which worker has tried
what is noted by the workers; what was asked for, and what each worker serves, is known here.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from distributed import get_worker

from tests.service.cluster import tuners
from tests.service.cluster.farm import Farm
from tests.service.cluster.many_workers import HERE, simulated_run
from tests.service.conftest import PROBLEM
from tests.service.processes import wait_until
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.toolchain import identity
from tilewise.service.cluster import task
from tilewise.service.cluster.facts import Facts
from tilewise.service.cluster.scheduler import configure, ends_at_signal
from tilewise.service.cluster.worker import _worker
from tilewise.service.host.machine import MachineInfo

MODULE = "tests.service.cluster.mixed_targets"
PROCESSES = ("mixed-1", "mixed-2")
MACHINES = tuple(
    MachineInfo(f"host-of-{cpu}", cpu, cores, 64 << 30, {}, ())
    for cpu in ("neoverse-v2", "sapphirerapids", "apple-m1")
    for cores in (1, 2)
)
"""One of each in each process; those of two cores also serve what those of one do."""

TARGETS = tuple(
    sorted(
        target for target in {target for machine in MACHINES for target in machine.targets}
        if target.startswith("cpu:")  # the fake trials have no schedules of IREE's
    )
)  # fmt: skip
TRIAL_S = 0.005


def facts(number: int, process: str) -> Facts:
    machine = MACHINES[number]
    return Facts(f"{machine.host}-{number}-{process}:1:1", machine, machine.targets, identity())


async def simulate(scheduler: str, process: str) -> None:
    """A worker of each machine in this process, until it is asked to end."""
    configure()
    ending, folder = ends_at_signal(), tempfile.mkdtemp()
    made = [
        _worker(scheduler, facts(number, process), HERE, folder) for number in range(len(MACHINES))
    ]

    def run_offer(job_id, token, service, toolchain, arguments=()):
        here = get_worker().address
        number = next(n for n, worker in enumerate(made) if worker.address == here)

        def note(order, trial):
            tuners.note(f"{order.problem} {trial} {number}")

        machine = MACHINES[number]
        simulated_run(TRIAL_S, job_id, token, service, toolchain, machine, note)

    task.run_offer = run_offer  # Dask finds it by its name
    await asyncio.gather(*made)
    await ending.wait()


def add_workers(farm: Farm, processes: Sequence[str] = PROCESSES) -> None:
    """Have simulated workers join a farm."""
    for process in processes:
        farm.commands["mixed"] = [MODULE, f"--scheduler={farm.scheduler}", f"--process={process}"]
        farm.start(process)


def run(farm: Farm, jobs: int, trials: int, rng: random.Random, first: int = 2) -> dict[str, str]:
    """Ask for jobs, each for one of the targets, and see them done; each problem's target."""
    asked, waiting = {}, []
    for number in range(first, first + jobs):
        name = parse_problem(f"{PROBLEM},batch={number}").canonical
        asked[name] = rng.choice(TARGETS)
        waiting.append(farm.ask(name, seed=tuners.STEADY, trials=trials, target=asked[name]))
    for job_id in waiting:
        wait_until(lambda job_id=job_id: is_done(farm, job_id), 600)
    return asked


def is_done(farm: Farm, job_id: int) -> bool:
    job = farm.job(job_id)
    assert job["state"] != "failed", job["error"]
    return job["state"] == "done"


def kill_halfway(farm: Farm, trials: int) -> None:
    """Half of the workers leave, and come back, once half of the trials are done."""
    wait_until(lambda: len(farm.noted()) >= trials // 2, 600)
    farm.kill_and_start(PROCESSES[-1])


def tried(farm: Farm, asked: dict[str, str]) -> list[tuple[str, int]]:
    """The target and the machine's number of each trial of these problems."""
    lines = [line.split() for line in farm.noted()]
    return [(asked[line[0]], int(line[2])) for line in lines if line[0] in asked]


def wrong(trials: Sequence[tuple[str, int]]) -> int:
    """How many trials ran on a machine that does not serve their target."""
    return sum(target not in MACHINES[number].targets for target, number in trials)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--trials", type=int, default=10, help="of each job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scheduler", help=argparse.SUPPRESS)
    parser.add_argument("--process", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.process:
        asyncio.run(simulate(options.scheduler, options.process))
        return
    folder = Path(tempfile.mkdtemp(prefix="tilewise-mixed-"))
    farm = Farm(folder, ["scheduler", "service", "driver"])
    try:
        add_workers(farm)
        farm.wait_for_workers(len(PROCESSES) * len(MACHINES))
        threading.Thread(target=kill_halfway, args=(farm, options.jobs * options.trials)).start()
        asked = run(farm, options.jobs, options.trials, random.Random(options.seed))
        trials = tried(farm, asked)
    finally:
        farm.close()
    sys.stdout.write(f"{options.jobs} jobs of {options.trials} trials are done; ")
    sys.stdout.write(f"{len(trials)} were tried, {wrong(trials)} on a wrong target\n")
    for target, count in sorted(Counter(target for target, _ in trials).items()):
        machines = {number for of, number in trials if of == target}
        sys.stdout.write(f"{target:32}{count:6} trials on {len(machines)} machines\n")


if __name__ == "__main__":
    main()
