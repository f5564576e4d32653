"""How often a 95% interval holds what a fresh process measures.

    python -m benchmarks.measuring.intervals [PROBLEM ...] [--searches 5] [--trials 16]

Each problem is searched several times, with other seeds. After each search a process of its own
times the winner alone, once. Its median is in the interval that the search gave, or it is slower,
or faster. A search knows the speed factors of those before it, as it does from a database (where
an hour counts).
"""

import argparse
from statistics import median

from benchmarks.memory_store import MemoryStore
from benchmarks.report import conditions
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import tune
from tilewise.search.records import Measurement, TuneRequest
from tilewise.search.runner.runner import Runner

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


def case(
    problem: Problem, seed: int, trials: int, speed_factors: list[list[float]]
) -> tuple[Measurement, float]:
    """A winner's measurement, and the median time in us of a fresh process."""
    target, store = detect(), MemoryStore(speed_factors=speed_factors)
    found = tune(problem, target, TuneRequest(trials=trials, seed=seed), store)
    known = (trial.speed_factor for trial in found.trials if trial.state == "timed")
    speed_factors.append([speed_factor for speed_factor in known if speed_factor is not None])
    assert found.best is not None
    with Runner(problem, target.canonical) as runner:
        steps = list(found.best.schedule.to_json())
        (again,) = runner.time_finalists([steps], ROUNDS, peers=False).finalists
    return found.best.measurement, 1e6 * median(t for times in again.times for t in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--searches", type=int, default=5)
    parser.add_argument("--trials", type=int, default=16)
    options = parser.parse_args()
    print(conditions())
    print(f"{'problem':<60} {'held':>7} {'slower':>7} {'faster':>7} {'half width':>11}  worst miss")
    held = total = 0
    speed_factors: list[list[float]] = []
    for text in options.problems:
        problem = parse_problem(text)
        found = [
            case(problem, seed, options.trials, speed_factors) for seed in range(options.searches)
        ]
        misses, widths, slower, faster = [], [], 0, 0
        for measured, fresh_us in found:
            low, high = measured.interval
            gflops = problem.flops / fresh_us / 1e3
            slower, faster = slower + (gflops < low), faster + (gflops > high)
            misses.append(max(low / gflops, gflops / high) - 1)
            widths.append((high - low) / 2 / measured.gflops)
        inside = len(found) - slower - faster
        held, total = held + inside, total + len(found)
        print(
            f"{text:<60} {inside:>3}/{len(found):<3} {slower:>7} {faster:>7} "
            f"{median(widths):>11.1%}  {max(misses):+.1%}",
            flush=True,
        )
    print(f"{'all':<60} {held:>3}/{total:<3} {held / total:>10.1%}")


if __name__ == "__main__":
    main()
