"""How often a 95% interval holds what a fresh process measures.

    python -m benchmarks.intervals [PROBLEM ...] [--schedules 5]

Each problem's first schedules of the prior go through the finals of a search (two processes,
several placements of the buffers). Then a process of its own measures each once more, and its
median is or is not in the interval.
"""

import argparse
from statistics import median
from typing import Any

from benchmarks.report import conditions
from kernels.problem import Problem, parse_problem
from kernels.target import detect
from search.budget import Budget
from search.finals import Finals
from search.measure import summarise
from search.prior import prior_points
from search.records import Measurement, TrialRecord, TuneRequest
from search.runner import Runner
from search.space import Space

PROBLEMS = (
    "matmul:m=1024,n=1024,k=1024,dtype=f32",
    "matmul:m=512,n=512,k=512,dtype=f32",
    "matmul:m=256,n=256,k=256,dtype=f32",
    "matmul:m=64,n=64,k=64,dtype=f32",
    "matmul:m=500,n=333,k=257,dtype=f32",
    "matmul:m=16,n=1024,k=1024,dtype=f32",
    "matmul:m=256,n=256,k=256,dtype=f64",
    "matmul:m=512,n=512,k=512,dtype=i32",
    "matmul:m=512,n=512,k=512,dtype=bf16",
    "conv2d:n=1,h=28,w=28,ci=64,co=64,kh=3,kw=3,pad=1,dtype=f32",
)
ROUNDS = 9


def cases(problem: Problem, count: int) -> list[tuple[Measurement, float]]:
    """Each schedule's measurement, and the median time in us of a fresh process."""
    target = detect()
    space = Space(problem, target)
    schedules = [space.schedule(point) for point in prior_points(space, count)]
    steps = [list(schedule.to_json()) for schedule in schedules]
    with Runner(problem, target.canonical) as runner:
        ranking = [_trial(runner, n, steps[n], s, problem) for n, s in enumerate(schedules)]
        finals = Finals(problem, False, runner, Budget(TuneRequest(), 0.0), most=count)
        best, _ = finals.run(ranking)
        assert best is not None
        runner.renew()
        again = runner.finals(steps, ROUNDS, peers=False)["times"]
    named = dict([(best.schedule, best.measurement), *best.runners_up])
    return [
        (named[schedule], 1e6 * median(times[0]))
        for schedule, times in zip(schedules, again, strict=True)
        if schedule in named
    ]


def _trial(runner: Runner, number: int, steps: Any, schedule: Any, problem: Problem) -> TrialRecord:
    reply = runner.trial(steps, None)
    measured = summarise(reply["times"], problem.flops)
    return TrialRecord(number, schedule, {}, "timed", "prior", measurement=measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--schedules", type=int, default=5)
    options = parser.parse_args()
    print(conditions())
    print(f"{'problem':<60} {'held':>7} {'half width':>11}  worst miss")
    held = total = 0
    for text in options.problems:
        problem = parse_problem(text)
        found = cases(problem, options.schedules)
        misses, widths, inside = [], [], 0
        for measured, fresh_us in found:
            low, high = measured.interval
            gflops = problem.flops / fresh_us / 1e3
            inside += low <= gflops <= high
            misses.append(max(low / gflops, gflops / high) - 1)
            widths.append((high - low) / 2 / measured.gflops)
        held, total = held + inside, total + len(found)
        print(
            f"{text:<60} {inside:>3}/{len(found):<3} {median(widths):>10.1%}  {max(misses):+.1%}",
            flush=True,
        )
    print(f"{'all':<60} {held:>3}/{total:<3} {held / total:>10.1%}")


if __name__ == "__main__":
    main()
