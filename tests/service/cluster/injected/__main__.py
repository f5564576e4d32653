"""How soon a worker of a cluster tries the next candidate after one that misbehaves.

    python -m tests.service.cluster.injected [--farms 5]

Each farm has one worker. Its job tries a good candidate, one with each fault, and a good one. The
search, its runner, its child and the store at the service are the real ones; the limit of a trial
is 1 s for those that hang. What is told is the time from the end of a faulty trial to the moment at
which a child has begun the next.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.service.cluster.farm import Farm
from tests.service.cluster.injected import faults
from tests.service.cluster.tuners import INJECTED
from tests.service.processes import wait_until
from tilewise.service.cluster.connection import DaskCluster

PROBLEM = "matmul:m=24,n=40,k=16,dtype=f32"
NAMES = ("scheduler", "service", "driver", "worker-1")


def seconds_to_next(lines: Sequence[str]) -> dict[int, float]:
    """For each fault, what lies between its trial's end and the beginning of the next trial."""
    found: dict[int, float] = {}
    ended: tuple[int, float] | None = None
    for line in lines:
        _, event, rows, at = line.split()
        if event == "failed":
            ended = int(rows), float(at)
        elif event == "began" and ended is not None:
            found[ended[0]] = float(at) - ended[1]
            ended = None
    return found


def workers(farm: Farm) -> dict[str, str]:
    """The process of each worker by its address, as the scheduler knows them."""
    cluster = DaskCluster(farm.scheduler, farm.service)
    try:
        return {address: facts.owner for address, facts in cluster.workers().items()}
    finally:
        cluster.close()


def measure() -> dict[int, float]:
    """Seconds to the next trial after each fault, of one job on the worker of a fresh farm."""
    farm = Farm(Path(tempfile.mkdtemp(prefix="tilewise-injected-")), NAMES)
    try:
        farm.wait_for_workers(1)
        before = workers(farm)
        job = farm.ask(PROBLEM, seed=INJECTED, trials=len(faults.ROWS))
        wait_until(lambda: farm.job(job)["state"] not in ("queued", "running"), 300)
        trials = farm.client.get(f"/v1/jobs/{job}/trials").json()["trials"]
        classes = [trial["failure"] for trial in trials]
        assert classes == [None, *faults.CLASSES.values(), None], farm.told()
        assert farm.job(job)["state"] == "done", farm.told()
        assert workers(farm) == before, "the worker did not stay"
        return seconds_to_next([line for line in farm.noted() if " run " not in line])
    finally:
        farm.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--farms", type=int, default=5)
    found: dict[int, list[float]] = defaultdict(list)
    for _ in range(parser.parse_args().farms):
        for rows, seconds in measure().items():
            found[rows].append(seconds)
    sys.stdout.write(f"{'fault':34}{'class':10}{'median s':>9}{'most s':>9}\n")
    for rows, times in found.items():
        told = f"{faults.NAMES[rows]:34}{faults.CLASSES[rows]:10}"
        sys.stdout.write(f"{told}{median(times):9.2f}{max(times):9.2f}\n")


if __name__ == "__main__":
    main()
