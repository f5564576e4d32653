"""What a search beside busy loops chooses, and what that is worth on the idle machine.

    python -m benchmarks.measuring.busy [--problems PROBLEM ...] [--trials 24] [--loops 4]

Each problem is searched twice with the same seed: on the idle machine, and beside busy loops, which
this program starts and stops. Then the two schedules are timed in interleaved rounds on the idle
machine, on several placements of the buffers in two processes. The ratio is the speed of the
schedule that was chosen beside the loops over that of the other. Its interval is Student's, over
the median ratios of the placements. About 15 minutes on two processors.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import exp, log, sqrt
from statistics import fmean, median, stdev
from typing import Any

from benchmarks.memory_store import MemoryStore
from benchmarks.report import conditions
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import tune
from tilewise.search.final_benchmark.rounds import PLACEMENT_ROUNDS, by_round, student
from tilewise.search.records import TuneRequest, Winner
from tilewise.search.runner.runner import Runner

PROBLEMS = (
    "matmul:m=128,n=768,k=768,dtype=f32",
    "matmul:m=128,n=3072,k=768,dtype=f32,bias",
    "matmul:m=512,n=768,k=3072,dtype=f32",
    "matmul:m=1024,n=512,k=2048,dtype=f32",
    "matmul:batch=12,m=128,n=128,k=64,dtype=f32,transpose_b",
    "conv2d:n=1,h=28,w=28,ci=128,co=128,kh=3,kw=3,pad=1,dtype=f32",
)
WANTED = 0.95
ROUNDS, PLACEMENTS, PROCESSES = 15, 3, 2
SETTLING_S = 2.0
LONGEST_S = 900  # after which a loop ends by itself
LOOP = f"""
import os, time
parent, end = os.getppid(), time.monotonic() + {LONGEST_S}
while time.monotonic() < end and os.getppid() == parent:
    for _ in range(10**6):
        pass
"""

Groups = list[float]
"""Logarithms of the median ratio, by process and placement."""


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Processes that compute without pause meanwhile."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        command = [sys.executable, "-c", LOOP]
        started.extend(subprocess.Popen(command) for _ in range(loops))
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def searched(problem: Problem, trials: int, loops: int) -> tuple[Winner, float]:
    """Return what a search chooses beside so many loops, and its seconds."""
    with busy(loops):
        result = tune(problem, detect(), TuneRequest(trials=trials), MemoryStore())
    time.sleep(SETTLING_S)
    if result.best is None:
        raise SystemExit(f"{problem.canonical}: no candidate ran")
    return result.best, result.elapsed_s


def compared(problem: Problem, base: Schedule, other: Schedule) -> tuple[Groups, float, float]:
    """Return the ratios of `other`'s speed over `base`'s, and the GFLOP/s of both."""
    steps: list[list[Any]] = [list(one.to_json()) for one in (base, other)]
    ratios: dict[tuple[int, int], Groups] = {}
    seconds: tuple[Groups, Groups] = ([], [])
    with Runner(problem, detect().canonical) as runner:
        for process in range(PROCESSES):
            reply = runner.time_finalists(steps, ROUNDS, False, PLACEMENTS)
            first, second = (by_round(timed) for timed in reply.finalists)
            for at in first.keys() & second.keys():
                group = process, at // PLACEMENT_ROUNDS
                ratios.setdefault(group, []).append(log(first[at] / second[at]))
            for all_seconds, timed in zip(seconds, (first, second), strict=True):
                all_seconds.extend(timed.values())
            runner.renew()
    base_speed, other_speed = (problem.flops / median(one) / 1e9 for one in seconds)
    return [median(ratios[group]) for group in sorted(ratios)], base_speed, other_speed


def interval(groups: Groups) -> tuple[float, float, float]:
    """Return the mean ratio and its 95% interval."""
    middle = fmean(groups)
    reach = student(len(groups)) * stdev(groups) / sqrt(len(groups))
    return exp(middle), exp(middle - reach), exp(middle + reach)


def shown(ratio: tuple[float, float, float]) -> str:
    return "{:.3f} [{:.3f}, {:.3f}]".format(*ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", metavar="PROBLEM", default=PROBLEMS)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--loops", type=int, default=4)
    options = parser.parse_args()
    print(conditions())
    print(
        f"{'problem':<58} {'idle':>6} {'busy':>6}  {'ratio':<22} {'search said':>20} {'took, s':>9}"
    )
    all_groups: list[Groups] = []
    for text in options.problems:
        problem = parse_problem(text)
        idle, idle_s = searched(problem, options.trials, 0)
        beside, busy_s = searched(problem, options.trials, options.loops)
        groups, *speeds = compared(problem, idle.schedule, beside.schedule)
        all_groups.append(groups)
        low, high = beside.measurement.interval
        said = f"{beside.measurement.gflops:.1f} [{low:.1f}, {high:.1f}]"
        print(
            f"{problem.canonical:<58} {speeds[0]:>6.1f} {speeds[1]:>6.1f}  "
            f"{shown(interval(groups)):<22} {said:>20} {idle_s:>4.0f} {busy_s:>4.0f}",
            flush=True,
        )
    together = interval([fmean(group) for group in zip(*all_groups, strict=True)])
    print(f"{'geometric mean':<58} {'':>13}  {shown(together)}, wanted: {WANTED} or more")


if __name__ == "__main__":
    main()
