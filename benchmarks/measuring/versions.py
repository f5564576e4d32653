"""Kernels of two versions of Tilewise, timed in turn: what a change of the code is worth.

    python -m benchmarks.measuring.versions OTHER [PROBLEM ...] [--suites square background]
        [--processes 3] [--rounds 20]

OTHER is a checkout of another version. For each problem of the suites a short search finds a
schedule; each version compiles it in a process of its own, on the same processor, and both are
timed in turn, in the order A B B A. A ratio above 1 says that this version is the faster one. Where
buffers lie moves a kernel by some percent, so several pairs of processes are timed; the median is
over all their rounds, and beside it stand the least and the greatest median of a pair.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.places import SUITES
from tilewise.bench import read_suite
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.statistics import median_interval
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import tune
from tilewise.search.records import TuneRequest
from tilewise.search.store import MemoryStore

HERE = Path(__file__).parents[2]
SAMPLE_S = 2e-3
CHILD = """
import json, sys, time
from importlib import import_module
def load(name):
    try:
        return import_module(f"tilewise.kernels.{name}")
    except ModuleNotFoundError:  # as it was called before 0.2.0
        return import_module(f"kernels.{name}")
lower = load("native").lower
parse_problem = load("problem").parse_problem
Schedule = load("schedule").Schedule
detect = load("target").detect
make_operands = load("oracle.operands").make_operands
asked = json.loads(sys.stdin.readline())
problem = parse_problem(asked["problem"])
operands = make_operands(problem, 0)
call = lower(problem, Schedule.from_json(asked["steps"]), detect()).bind(operands)
call(1)
print("ready", flush=True)
for line in sys.stdin:
    repeat = int(line)
    call(1)
    begin = time.perf_counter()
    call(repeat)
    print((time.perf_counter() - begin) / repeat, flush=True)
"""


class Version:
    """A kernel of one version, in a process of its own."""

    def __init__(self, root: Path, problem: Problem, steps: list[Any], processor: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env=os.environ | ONE_THREAD | {"PYTHONPATH": str(root)},
        )
        os.sched_setaffinity(self._process.pid, {processor})
        self._say(json.dumps({"problem": problem.canonical, "steps": steps}))
        assert self._hear() == "ready"

    def seconds(self, repeat: int) -> float:
        """Of one run, in a sample of so many."""
        self._say(str(repeat))
        return float(self._hear())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the other version's process has ended; its message stands above"
        return line


def compare(
    problem: Problem, other: Path, processes: int, rounds: int, trials: int
) -> list[list[float]]:
    """The other version's time over this one's, of each round of each pair of processes."""
    found = tune(problem, detect(), TuneRequest(trials), MemoryStore())
    assert found.best is not None
    steps = list(found.best.schedule.to_json())
    repeat = max(1, round(SAMPLE_S / (found.best.measurement.time_us / 1e6)))
    return [pair(problem, steps, other, rounds, repeat) for _ in range(processes)]


def pair(problem: Problem, steps: list[Any], other: Path, rounds: int, repeat: int) -> list[float]:
    """The ratio of each round of one pair of processes."""
    processor = max(os.sched_getaffinity(0))
    this, that = (Version(root, problem, steps, processor) for root in (HERE, other))
    ratios = []
    try:
        for _ in range(rounds):
            first, second = this.seconds(repeat), that.seconds(repeat)
            third, fourth = that.seconds(repeat), this.seconds(repeat)
            ratios.append((second + third) / (first + fourth))
    finally:
        this.close()
        that.close()
    return ratios


def main() -> int:
    """Compare the versions on every problem of the suites."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("other", type=Path, help="a checkout of the other version")
    parser.add_argument("problems", nargs="*", help="instead of suites")
    parser.add_argument("--suites", nargs="+", default=["square", "background"])
    parser.add_argument("--processes", type=int, default=3, help="pairs of processes")
    parser.add_argument("--rounds", type=int, default=20, help="of each pair")
    parser.add_argument("--trials", type=int, default=12, help="of the search for a schedule")
    options = parser.parse_args()
    began, middles = time.monotonic(), []
    suites = [read_suite(SUITES / f"{name}.json") for name in options.suites]
    problems = [entry.problem for suite in suites for entry in suite.entries]
    print(f"{'problem':<76} {'ratio':>6}  95% interval    medians of pairs")
    for problem in map(parse_problem, options.problems) if options.problems else problems:
        other = options.other.resolve()
        pairs = compare(problem, other, options.processes, options.rounds, options.trials)
        ratios = sorted(ratio for one in pairs for ratio in one)
        low, high = median_interval(len(ratios))
        middles.append(median(ratios))
        print(
            f"{problem.canonical:<76} {middles[-1]:>6.3f}  "
            f"{ratios[low]:.3f} to {ratios[high]:.3f}  "
            f"{min(map(median, pairs)):.3f} to {max(map(median, pairs)):.3f}",
            flush=True,
        )
    mean = exp(sum(map(log, middles)) / len(middles))
    print(f"geometric mean of {len(middles)}: {mean:.4f}; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
