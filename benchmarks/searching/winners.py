"""Whether winners stay winners: those of several seeds, timed again interleaved.

    python -m benchmarks.searching.winners [PROBLEM ...] [--seeds 10] [--trials 64]

Each problem is searched once for each seed. Then a fresh process times the winners in
interleaved rounds, and each one's time over that of the fastest is quoted, by what
the rounds say (`tilewise.search.final_benchmark.rounds`).
"""

import argparse
import time
from math import exp
from statistics import median

from benchmarks.memory_store import MemoryStore
from benchmarks.report import conditions
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import tune
from tilewise.search.final_benchmark.rounds import rounds_of
from tilewise.search.records import TuneRequest
from tilewise.search.runner.runner import Runner

PROBLEMS = (
    "matmul:m=512,n=512,k=512,dtype=f32",
    "matmul:m=256,n=256,k=256,dtype=f32",
    "matmul:m=500,n=333,k=257,dtype=f32",
    "matmul:m=512,n=512,k=512,dtype=i32",
    "conv2d:n=1,h=28,w=28,ci=64,co=64,kh=3,kw=3,pad=1,dtype=f32",
)
ROUNDS, PLACEMENTS = 11, 9
"""Where buffers lie moves some schedules by 2% (one standard deviation): so many placements leave
less than 1% of that."""


def behind(problem: Problem, seeds: int, trials: int) -> list[float]:
    """Each seed's winner over the fastest of them, less one."""
    target = detect()
    steps = []
    for seed in range(seeds):
        found = tune(problem, target, TuneRequest(trials=trials, seed=seed), MemoryStore())
        assert found.best is not None
        steps.append(list(found.best.schedule.to_json()))
    different = [list(each) for each in {str(s): s for s in steps}.values()]
    with Runner(problem, target.canonical) as runner:
        reply = runner.time_finalists(different, ROUNDS, peers=False, placements=PLACEMENTS)
    standing = rounds_of(reply).standings
    behind = {
        str(s): exp(at - min(standing)) - 1 for s, at in zip(different, standing, strict=True)
    }
    return sorted(behind[str(each)] for each in steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=TuneRequest().trials)
    options = parser.parse_args()
    print(conditions())
    print(f"{'problem':<60} {'median':>7} {'worst':>7} {'seconds':>8}")
    for text in options.problems:
        begin = time.monotonic()
        ratios = behind(parse_problem(text), options.seeds, options.trials)
        took = time.monotonic() - begin
        print(f"{text:<60} {median(ratios):>7.1%} {ratios[-1]:>7.1%} {took:>8.0f}", flush=True)


if __name__ == "__main__":
    main()
