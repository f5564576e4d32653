"""Compare the kernels of two versions of Tilewise: faster, slower, same or undecided.

    python -m benchmarks.measuring.versions BASE [PROBLEM ...] [--suites square background]
        [--processes 3] [--rounds 20]

BASE is a checkout of another version, or a revision of this repository. For each problem of the
suites a short search finds a schedule. Each version compiles it in its own process, on the same
processor, and both are timed in turn, in the order A B B A. A ratio above 1 means that this version
is faster. Where buffers are in a page moves a kernel by up to 30%: both processes of a pair have
them at the same offsets, and each pair has other ones. The median is over all rounds of all pairs,
and beside it are the least and the greatest median of a pair. A problem that remains undecided is
timed once more, with twice as many pairs.

The command exits with 1 if a problem is slower than BASE by more than the tolerance.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.memory_store import MemoryStore
from benchmarks.places import SUITES
from tilewise.bench import read_suite
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.statistics import median_interval
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import tune
from tilewise.search.records import TuneRequest
from tilewise.search.verdicts import TOLERANCE, Verdict, verdict

HERE = Path(__file__).parents[2]
SAMPLE_S = 2e-3
CHILD = """
import json, mmap, random, sys, time
from importlib import import_module
import numpy as np
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
draw = random.Random(asked["pair"])
def placed(array):
    memory = np.frombuffer(mmap.mmap(-1, array.nbytes + 8192), np.uint8)
    start = -memory.ctypes.data % 4096 + 64 * draw.randrange(64)
    moved = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved
operands = {name: placed(array) for name, array in sorted(make_operands(problem, 0).items())}
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


@contextmanager
def checkout(base: str) -> Iterator[Path]:
    """Yield a folder with the version `base`: the folder itself, or a worktree of a revision."""
    if Path(base).is_dir():
        yield Path(base).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", folder, base], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run([*git, "remove", "--force", folder], check=True)


class Version:
    """A kernel of one version, in a process of its own."""

    def __init__(
        self, root: Path, problem: Problem, steps: list[Any], processor: int, pair: int
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env=os.environ | ONE_THREAD | {"PYTHONPATH": str(root)},
        )
        os.sched_setaffinity(self._process.pid, {processor})
        self._say(json.dumps({"problem": problem.canonical, "steps": steps, "pair": pair}))
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


def schedule_for(problem: Problem, trials: int) -> tuple[list[Any], int]:
    """Return the steps that a short search finds, and how many runs make a sample."""
    found = tune(problem, detect(), TuneRequest(trials), MemoryStore())
    assert found.best is not None
    repeat = max(1, round(SAMPLE_S / (found.best.measurement.time_us / 1e6)))
    return list(found.best.schedule.to_json()), repeat


def pair(
    problem: Problem, steps: list[Any], other: Path, rounds: int, repeat: int, number: int
) -> list[float]:
    """Return the ratio of each round of one pair of processes; its number chooses the offsets."""
    processor = max(os.sched_getaffinity(0))
    this, that = (Version(root, problem, steps, processor, number) for root in (HERE, other))
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


def interval_of(pairs: list[list[float]]) -> tuple[float, float]:
    """Return the 95% interval of the median over all rounds of all pairs."""
    ratios = sorted(ratio for one in pairs for ratio in one)
    low, high = median_interval(len(ratios))
    return ratios[low], ratios[high]


def compare(problem: Problem, base: Path, options: argparse.Namespace) -> list[list[float]]:
    """Return the time of `base` over that of this version, of each round of each pair."""
    steps, repeat = schedule_for(problem, options.trials)
    pairs: list[list[float]] = []
    for count in (options.processes, 2 * options.processes):
        pairs += [
            pair(problem, steps, base, options.rounds, repeat, len(pairs) + index)
            for index in range(count)
        ]
        if verdict(*interval_of(pairs), options.tolerance) is not Verdict.UNDECIDED:
            break
    return pairs


def main() -> int:
    """Compare the versions on every problem of the suites; return 1 after a regression."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("base", help="a checkout or a git revision of the other version")
    parser.add_argument("problems", nargs="*", help="instead of suites")
    parser.add_argument("--suites", nargs="+", default=["square", "background"])
    parser.add_argument("--processes", type=int, default=3, help="pairs of processes")
    parser.add_argument("--rounds", type=int, default=20, help="of each pair")
    parser.add_argument("--trials", type=int, default=12, help="of the search for a schedule")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="a change that is none")
    options = parser.parse_args()
    suites = [read_suite(SUITES / f"{name}.json") for name in options.suites]
    problems = [entry.problem for suite in suites for entry in suite.entries]
    if options.problems:
        problems = [parse_problem(text) for text in options.problems]
    with checkout(options.base) as base:
        return report(problems, base, options)


def report(problems: list[Problem], base: Path, options: argparse.Namespace) -> int:
    """Print a row for each problem and a summary; return 1 after a regression."""
    began = time.monotonic()
    middles: list[float] = []
    verdicts: Counter[Verdict] = Counter()
    print(f"{'problem':<76} {'ratio':>6}  95% interval    medians of pairs  verdict")
    for problem in problems:
        pairs = compare(problem, base, options)
        low, high = interval_of(pairs)
        middles.append(median(ratio for one in pairs for ratio in one))
        found = verdict(low, high, options.tolerance)
        verdicts[found] += 1
        print(
            f"{problem.canonical:<76} {middles[-1]:>6.3f}  {low:.3f} to {high:.3f}  "
            f"{min(map(median, pairs)):.3f} to {max(map(median, pairs)):.3f}    {found}",
            flush=True,
        )
    mean = exp(sum(map(log, middles)) / len(middles))
    counts = ", ".join(f"{verdicts[one]} {one}" for one in Verdict)
    print(f"{counts}; geometric mean {mean:.4f}; {time.monotonic() - began:.0f} s")
    return int(verdicts[Verdict.SLOWER] > 0)


if __name__ == "__main__":
    sys.exit(main())
