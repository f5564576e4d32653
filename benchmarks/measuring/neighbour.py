"""Whether a process that compiles on another core disturbs the one that times.

    python -m benchmarks.measuring.neighbour [PROBLEM ...] [--rounds 12]

The same schedules are timed by one process, in turns with and without a neighbour that
compiles without pause on the processors and with the priority that a search gives it. A
turn times every schedule; the ratio of a schedule's medians over all turns is quoted.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from statistics import fmean, median, stdev
from typing import Any, Protocol

from benchmarks.report import conditions
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.system.children import child_command, child_environment
from tilewise.kernels.target import detect
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.runner.compilers import GIVE_WAY
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner
from tilewise.search.space.space import Space

PROBLEMS = ("matmul:m=1024,n=1024,k=1024,dtype=f32", "matmul:m=256,n=256,k=256,dtype=f32")
SCHEDULES = 4


class Disturbing(Protocol):
    """What runs on the other processors, and can be held."""

    def hold(self) -> None:
        """Be still."""

    def go_on(self) -> None:
        """Disturb."""

    def close(self) -> None:
        """End."""


class Neighbour:
    """A process that compiles the problem's prior over and over, held when it is not wanted."""

    def __init__(self, problem: Problem, processors: set[int]) -> None:
        self._process = subprocess.Popen(
            child_command("benchmarks.measuring.neighbour", "--compile", problem.canonical),
            env=child_environment(),
        )
        os.sched_setaffinity(self._process.pid, processors)
        os.setpriority(os.PRIO_PROCESS, self._process.pid, GIVE_WAY)

    def hold(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def compile_for_ever(text: str) -> None:
    """What the neighbour does: the code generation of micro-kernels, never from the cache."""
    from llvmlite import ir

    from tilewise.kernels.native.jit.loading import emit_all
    from tilewise.kernels.native.jit.object_code import compile_module
    from tilewise.kernels.native.plan import plan

    problem, target = parse_problem(text), detect()
    space = Space(problem, target)
    points = prior_points(AnalyticalModel.shipped(space), 8)
    made = [plan(problem, space.schedule(point), target).kernel for point in points]
    while True:
        for kernel in made:
            module = ir.Module("kernel")
            compile_module(module, emit_all(module, kernel))


def compare(
    problem: Problem,
    rounds: int,
    neighbour_of: Callable[[Problem, set[int]], Disturbing] = Neighbour,
) -> list[tuple[float, int, int]]:
    """Per schedule: the ratio of medians, with over without, and the rejected samples of both."""
    target = detect()
    space = Space(problem, target)
    steps = [
        list(space.schedule(p).to_json())
        for p in prior_points(AnalyticalModel.shipped(space), SCHEDULES)
    ]
    times: dict[tuple[int, bool], list[float]] = {}
    rejected: dict[tuple[int, bool], int] = {}
    with Runner(problem, target.canonical) as runner:
        if not runner.processors.others:
            raise SystemExit("there is no second processor to compile on")
        for each in steps:
            runner.trial(each, None)
        neighbour = neighbour_of(problem, runner.processors.others)
        try:
            for turn in range(2 * rounds):
                beside = turn % 2 == 1
                (neighbour.go_on if beside else neighbour.hold)()
                for index, each in enumerate(steps):
                    reply = _again(runner, each)
                    times.setdefault((index, beside), []).extend(reply.times)
                    key = (index, beside)
                    rejected[key] = rejected.get(key, 0) + reply.rejected
        finally:
            neighbour.close()
    return [
        (
            median(times[index, True]) / median(times[index, False]),
            rejected[index, True],
            rejected[index, False],
        )
        for index in range(len(steps))
    ]


def _again(runner: Runner, steps: list[Any]) -> dict[str, Any]:
    while True:
        try:
            return runner.trial(steps, None)
        except CandidateFailureError as failure:
            print(f"again: {failure}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--compile", metavar="PROBLEM", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        compile_for_ever(options.compile)
    print(conditions())
    print(
        f"{'problem':<42} with/without, per schedule          mean   +- sd  rejected with, without"
    )
    for text in options.problems:
        found = compare(parse_problem(text), options.rounds)
        ratios = [ratio for ratio, *_ in found]
        shown = " ".join(f"{ratio:.4f}" for ratio in ratios)
        print(
            f"{text:<42} {shown:<35} {fmean(ratios):.4f} {stdev(ratios):.4f}  "
            f"{sum(w for _, w, _ in found)}, {sum(w for *_, w in found)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
