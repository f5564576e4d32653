"""What a busy neighbour does to a search: its winner, and what the rejected samples say.

    python -m benchmarks.measuring.stress [PROBLEM ...] [--trials 48]

A problem is searched in quiet, with a process that computes without pause on another core,
and with one on the very core that times. Then the three winners are timed again, interleaved
and in quiet; what each is behind is by the ratios within rounds.
"""

import argparse
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import exp
from statistics import median

from benchmarks.memory_store import MemoryStore
from benchmarks.report import conditions
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import tune
from tilewise.search.final_benchmark.rounds import rounds_of
from tilewise.search.records import TuneRequest, TuneResult
from tilewise.search.runner.processors import claim
from tilewise.search.runner.runner import Runner

PROBLEMS = ("matmul:m=1024,n=1024,k=1024,dtype=f32", "matmul:m=256,n=256,k=256,dtype=f32")
ROUNDS, PLACEMENTS = 31, 3


def compute(processors: set[int]) -> None:
    """Multiply matrices for ever, with the caches and units that this takes."""
    os.sched_setaffinity(0, processors)
    import numpy as np

    a = np.ones((384, 384), np.float32)
    while True:
        a @ a


@contextmanager
def neighbour(processors: set[int] | None) -> Iterator[None]:
    """A busy process on these processors; none for None."""
    if not processors:
        yield
        return
    process = multiprocessing.get_context("spawn").Process(
        target=compute, args=(processors,), daemon=True
    )
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def searched(problem: Problem, trials: int, beside: set[int] | None) -> TuneResult:
    with neighbour(beside):
        return tune(problem, detect(), TuneRequest(trials=trials), MemoryStore())


def report(problem: Problem, trials: int) -> Iterator[str]:
    """A line for each kind of neighbour."""
    free = claim(detect().canonical)
    free.release()
    kinds = {"none": None, "on another core": free.others, "on the same core": free.timing}
    found = {name: searched(problem, trials, beside) for name, beside in kinds.items()}
    steps = [list(r.best.schedule.to_json()) for r in found.values() if r.best]
    with Runner(problem, detect().canonical) as runner:
        reply = runner.time_finalists(steps, ROUNDS, peers=False, placements=PLACEMENTS)
    rounds = rounds_of(reply)
    times = [median(rounds.undisturbed_times(index).values()) for index in range(len(steps))]
    standing = rounds.standings
    for (name, result), seconds, at in zip(found.items(), times, standing, strict=True):
        assert result.best is not None
        rejected = sum(trial.rejected for trial in result.trials)
        kept = sum(len(trial.samples) for trial in result.trials)
        yield (
            f"{problem.canonical:<42} {name:<17} {exp(at - min(standing)) - 1:>7.1%} "
            f"{rejected / (rejected + kept):>9.1%} {result.best.measurement.gflops:>8.1f} "
            f"{problem.flops / seconds / 1e9:>8.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--trials", type=int, default=48)
    options = parser.parse_args()
    print(conditions())
    print(
        f"{'problem':<42} {'neighbour':<17} {'behind':>7} {'rejected':>9} {'then':>8} "
        f"{'in quiet':>8}"
    )
    for text in options.problems:
        for line in report(parse_problem(text), options.trials):
            print(line, flush=True)


if __name__ == "__main__":
    main()
