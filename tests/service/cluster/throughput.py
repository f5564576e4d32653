"""How many trials a second a farm does, in units of one worker's.

    python -m tests.service.cluster.throughput --workers 8 --jobs 16
    python -m tests.service.cluster.throughput --spread 8 --trials 400

Trials take a fixed time, so that one core can play many machines. All processes are real.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.service.cluster import tuners
from tests.service.cluster.farm import Farm
from tests.service.conftest import PROBLEM
from tests.service.processes import wait_until
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import DEFAULT_SAMPLER


def trials_a_second(workers: int, jobs: int, trials: int, trial_s: float) -> float:
    """Of a fresh farm, from its first trial to its last."""
    names = ["scheduler", "service", "driver", *(f"worker-{n + 1}" for n in range(workers))]
    folder = Path(tempfile.mkdtemp(prefix="tilewise-farm-"))
    farm = Farm(folder, names, **{tuners.TRIAL_S: str(trial_s)})
    try:
        farm.wait_for_workers(workers)
        for number in range(jobs):
            name = parse_problem(f"{PROBLEM},batch={number + 2}").canonical
            farm.ask(name, seed=tuners.STEADY, trials=trials)
        wait_until(lambda: len(farm.noted()) >= 1, 120)
        began, first = time.monotonic(), len(farm.noted())
        wait_until(lambda: len(farm.noted()) == jobs * trials, 3600)
        return (jobs * trials - first) / (time.monotonic() - began)
    finally:
        farm.close()


def spread_trials_a_second(spread: int, trials: int, trial_s: float, sampler: str) -> float:
    """Of one job, once all its machines work on it, to its last trial.

    Each helper starts a process first, which on one core takes the others' time.
    """
    names = ["scheduler", "service", "driver", *(f"worker-{n + 1}" for n in range(spread))]
    folder = Path(tempfile.mkdtemp(prefix="tilewise-farm-"))
    farm = Farm(folder, names, **{tuners.TRIAL_S: str(trial_s)})
    try:
        farm.wait_for_workers(spread)
        name = parse_problem(f"{PROBLEM},batch=2").canonical
        asked = {"trials": trials, "spread": spread, "sampler": sampler}
        job = farm.ask(name, seed=tuners.SPREAD, **asked)
        wait_until(lambda: _processes(farm) == spread, 300)
        began, first = time.monotonic(), _stored(farm, job)
        wait_until(lambda: _stored(farm, job) == trials, 3600)
        return (trials - first) / (time.monotonic() - began)
    finally:
        farm.close()


def _processes(farm: Farm) -> int:
    """How many have timed a candidate."""
    return len({line.split()[2] for line in farm.noted()})


def _stored(farm: Farm, job: int) -> int:
    trials = farm.job(job)["trials"]
    return sum(trials[state] for state in ("timed", "pruned", "failed"))


def cancelled_after(count: int) -> list[float]:
    """Seconds from the answer to a cancellation to the death of the trial that hangs, sorted."""
    folder = Path(tempfile.mkdtemp(prefix="tilewise-farm-"))
    farm = Farm(folder, ["scheduler", "service", "driver", "worker-1"])
    found = []
    try:
        farm.wait_for_workers(1)
        for number in range(count):
            name = parse_problem(f"{PROBLEM},batch={number + 2}").canonical
            job = farm.ask(name, seed=tuners.HANGING)
            wait_until(lambda job=job: farm.job(job)["trials"]["timed"] == 1)
            farm.client.delete(f"/v1/jobs/{job}")
            began = time.monotonic()
            wait_until(lambda: not farm.runs())
            found.append(time.monotonic() - began)
        return sorted(found)
    finally:
        farm.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--trials", type=int, default=100, help="of each job")
    parser.add_argument("--trial", type=float, default=0.2, metavar="SECONDS")
    parser.add_argument("--spread", type=int, default=0, help="one job on so many workers instead")
    parser.add_argument("--sampler", default=DEFAULT_SAMPLER, help="of that job")
    parser.add_argument("--cancels", type=int, default=0, help="time so many cancellations instead")
    options = parser.parse_args(arguments)
    if options.cancels:
        found = cancelled_after(options.cancels)
        middle, last = found[len(found) // 2], found[-1]
        sys.stdout.write(f"a cancelled trial is dead after {middle:.2f} s, at most {last:.2f} s\n")
        return
    if options.spread:
        given = options.trials, options.trial, options.sampler
        one, many = (
            spread_trials_a_second(1, *given),
            spread_trials_a_second(options.spread, *given),
        )
        sys.stdout.write(f"1 worker {one:.2f} trials/s; one job on {options.spread} {many:.2f}: ")
        sys.stdout.write(f"{many / one:.2f} times as many\n")
        return
    share = options.jobs // options.workers
    one = trials_a_second(1, share, options.trials, options.trial)
    many = trials_a_second(options.workers, options.jobs, options.trials, options.trial)
    sys.stdout.write(f"1 worker {one:.2f} trials/s; {options.workers} workers {many:.2f}: ")
    sys.stdout.write(f"{many / one:.2f} times as many\n")


if __name__ == "__main__":
    main()
