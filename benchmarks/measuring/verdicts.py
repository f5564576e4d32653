"""Planted slowdowns that `tilewise compare --retime` finds, and false verdicts that it gives.

    python -m benchmarks.measuring.verdicts [--problems 100] [--planted 10] [--runs 1]

Each problem has one untimed schedule, which is timed against itself as `compare --retime` times a
pair. In some problems each call of the second one is delayed by 5%, and in as many by 3%. A delay
is found if the verdict is `slower`; any verdict but `same` and `undecided` on an unchanged problem
is false. The command exits with 1 unless all delays of 5% and 80% of those of 3% were found,
without a false verdict.
"""

import argparse
import os
import sys
import time
from collections import Counter
from random import Random

from benchmarks.measuring.delayed import VARIABLE
from benchmarks.report import conditions
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import detect
from tilewise.search.final_benchmark.pairs import PairTiming, time_pair
from tilewise.search.model.prior import direct_schedules
from tilewise.search.runner.runner import Runner
from tilewise.search.verdicts import Verdict

DELAYS = (0.05, 0.03)
TO_FIND = {0.05: 1.0, 0.03: 0.8}
TOLERANCE = 0.015
SIZES = (64, 96, 128, 192, 256, 384, 512)
DTYPES = ("f32", "f64", "bf16", "i32")
CHILD = "benchmarks.measuring.delayed"


def drawn(count: int, seed: int) -> list[Problem]:
    """Return different matmuls and convolutions of 0.03 to 30 ms."""
    draw, found = Random(seed), dict[str, Problem]()
    while len(found) < count:
        m, n, k = draw.choices(SIZES, k=3)
        text = f"matmul:m={m},n={n},k={k},dtype={draw.choice(DTYPES)}"
        if draw.random() < 0.3:
            size, channels = draw.choice((7, 14, 28)), draw.choice((32, 64, 128))
            text = (
                f"conv2d:n=1,h={size},w={size},ci={channels},co={channels},"
                f"kh=3,kw=3,pad=1,dtype=f32"
            )
        found[text] = parse_problem(text)
    return list(found.values())


def timed(problem: Problem, delay: float, tolerance: float) -> PairTiming:
    """Time a schedule against itself with delayed calls."""
    target = detect()
    (schedule,) = direct_schedules(problem, target, 1)
    steps = schedule.to_json()
    os.environ[VARIABLE] = str(delay)
    with Runner(problem, target.canonical, child=CHILD) as runner:
        return time_pair(runner, steps, steps, tolerance)


def main() -> int:
    """Print a row for each problem that has a delay or a false verdict, and a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=100, help="unchanged ones")
    parser.add_argument("--planted", type=int, default=10, help="with each delay")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    options = parser.parse_args()
    print(conditions())
    return max(run(options, options.seed + number) for number in range(options.runs))


def run(options: argparse.Namespace, seed: int) -> int:
    """Time all problems once; return 1 unless enough was found."""
    began, counts = time.monotonic(), Counter[tuple[float, Verdict]]()
    delays = [0.0] * options.problems + [one for one in DELAYS for _ in range(options.planted)]
    for problem, delay in zip(drawn(len(delays), seed), delays, strict=True):
        timing = timed(problem, delay, options.tolerance)
        found = timing.verdict(options.tolerance)
        counts[delay, found] += 1
        if delay or found not in (Verdict.SAME, Verdict.UNDECIDED):
            low, high = timing.interval
            print(
                f"{problem.canonical:<70} {delay:>5.0%} {timing.ratio:.4f}  "
                f"{low:.4f} to {high:.4f}  {timing.processes} processes  {found}",
                flush=True,
            )
    for delay in (0.0, *DELAYS):
        shown = ", ".join(f"{counts[delay, one]} {one}" for one in Verdict)
        print(f"delay {delay:.0%}: {shown}")
    print(f"seed {seed}, {time.monotonic() - began:.0f} s")
    is_enough = all(
        counts[delay, Verdict.SLOWER] >= TO_FIND[delay] * options.planted for delay in DELAYS
    )
    return int(not is_enough or any(counts[0.0, one] for one in (Verdict.SLOWER, Verdict.FASTER)))


if __name__ == "__main__":
    sys.exit(main())
