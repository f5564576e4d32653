"""How far a trial's time is from what the finals would say of the schedule.

    python -m benchmarks.measuring.trial_error [PROBLEM ...] [--schedules 30] [--processes 4]
    [--repeats 2]

Each problem is searched once. Of the schedules within 8% of its best some are drawn, and timed in
interleaved rounds of three processes with nine placements of the buffers each. Then they are
trials again, several times in each of several processes, beside one of them as the control. The
logarithm of what a trial told, less that of the rounds (each less its median over the schedules),
is the trial's error. One part of it comes anew with each trial, one with each process (where its
buffers lie), and one stays: what trials and rounds mean by a schedule's time is not the same.
"""

import argparse
from collections.abc import Iterable
from math import log
from random import Random
from statistics import fmean, median, stdev

from benchmarks.report import conditions
from benchmarks.searching.warm_start import searched, settled
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import detect
from tilewise.search.records import TuneRequest, time_us
from tilewise.search.runner.runner import Runner

PROBLEMS = (
    "matmul:m=200,n=517,k=391,dtype=f32",
    "conv2d:n=1,h=14,w=14,ci=1024,co=256,kh=1,kw=1,dtype=f32",
    "matmul:m=128,n=3072,k=768,dtype=f32",
)
NEAR = 1.08  # of the best: what a search has to rank

Times = dict[str, float]
"""Logarithms of times by schedule's hash, less their median."""


def drawn(problem: Problem, most: int) -> dict[str, Schedule]:
    """Schedules near the best that a search found, drawn at random."""
    ran = [
        trial for trial in searched(problem, TuneRequest(), [], None).trials if trial.measurement
    ]
    least = min((time_us(trial) for trial in ran), default=0.0)
    near = [trial.schedule for trial in ran if time_us(trial) < NEAR * least]
    return {each.hash: each for each in Random(0).sample(near, min(most, len(near)))}


def trials(
    problem: Problem, schedules: dict[str, Schedule], seed: int, repeats: int
) -> list[Times]:
    """What trials say in a process, each time in another order."""
    first, random = next(iter(schedules.values())), Random(seed)
    told: list[Times] = []
    with Runner(problem, detect().canonical, seed) as runner:
        alone_s = median(runner.trial(list(first.to_json()), None).times)
        control = {"steps": list(first.to_json()), "seconds": alone_s}
        for _ in range(repeats):
            once = {}
            for found in random.sample(list(schedules), len(schedules)):
                reply = runner.trial(list(schedules[found].to_json()), alone_s, control)
                if not reply.pruned and reply.speed_factor:
                    once[found] = log(median(reply.times) / reply.speed_factor)
            told.append(once)
    return told


def centred(times: Times, kept: Iterable[str]) -> Times:
    """Those that are kept, less their median."""
    middle = median(times[found] for found in kept)
    return {found: times[found] - middle for found in kept}


def mean_of(several: list[Times]) -> Times:
    """The means of each schedule's times."""
    return {found: fmean(times[found] for times in several) for found in several[0]}


def row(problem: Problem, schedules: int, processes: int, repeats: int) -> str:
    """One line of the table."""
    chosen = drawn(problem, schedules)
    if len(chosen) < 2:
        return f"| `{problem.canonical}` | {len(chosen)}: too few are near the best |"
    rounds = {found: log(over) for found, over in settled(problem, chosen).items()}
    told = [trials(problem, chosen, seed, repeats) for seed in range(processes)]
    kept = set(rounds).intersection(*(once for process in told for once in process))
    if len(kept) < 2:
        return f"| `{problem.canonical}` | {len(kept)} were timed in every process: too few |"
    true = centred(rounds, kept)
    each = [[centred(once, kept) for once in process] for process in told]
    means = [mean_of(process) for process in each]
    stays = mean_of(means)
    errors = [once[f] - true[f] for process in each for once in process for f in kept]
    anew = [
        once[f] - mean[f]
        for process, mean in zip(each, means, strict=True)
        for once in process
        for f in kept
    ]
    placed = [mean[f] - stays[f] for mean in means for f in kept]
    figures = [
        stdev(true.values()),
        stdev(errors),
        stdev(anew) * (repeats / (repeats - 1)) ** 0.5,
        stdev(placed) * (processes / (processes - 1)) ** 0.5,
        stdev(stays[f] - true[f] for f in kept),
    ]
    cells = " | ".join(f"{figure:.2%}" for figure in figures)
    return f"| `{problem.canonical}` | {len(kept)} | {cells} |"


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--schedules", type=int, default=30)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    if min(options.schedules, options.processes, options.repeats) < 2:
        parser.error("--schedules, --processes and --repeats: a spread needs two at least")
    print(conditions())
    heads = "problem | schedules | they spread | a trial errs | each time | each process | it stays"
    print(f"| {heads} |\n|---|{'---:|' * 6}")
    for text in options.problems:
        given = options.schedules, options.processes, options.repeats
        print(row(parse_problem(text), *given), flush=True)


if __name__ == "__main__":
    main()
