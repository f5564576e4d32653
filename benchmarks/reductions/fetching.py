"""What a suite loses where no schedule has a kind of `prefetch`.

    python -m benchmarks.reductions.fetching [SUITE | PROBLEM ...] [--constant] [--points 24]
        [--rounds 31]

SUITE is a name in `benchmarks/data/suites`; `--constant` has weights that are packed ahead. The
first schedules of the analytical model are timed with the step and without it, the fastest of them
in interleaved rounds on one core. `same` is the time of the fastest schedule of a kind without the
step over its time with it. `best` is the time of the fastest schedule that is not of this kind over
that of the fastest of all: what a search loses without this kind. Both are medians of the rounds'
ratios; quartiles are in brackets.
"""

import argparse
import os
from collections import defaultdict
from contextlib import suppress
from math import exp, log
from statistics import mean, median, quantiles
from typing import Any

from benchmarks.places import SUITES
from tilewise.bench import read_suite
from tilewise.bench.machine import processor
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Prefetch, Schedule, loop_nest
from tilewise.kernels.target import resolve
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space
from tilewise.search.timing.measure import interleave

SCREENING_ROUNDS, KEPT = 5, 2
Times = dict[Schedule, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=["decode"])
    parser.add_argument("--constant", action="store_true")
    parser.add_argument("--points", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{processor()}\n{'problem':<64} {'kind':<12} {'same':>18} {'best':>18}  steps")
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for problem in problems(options.names, options.constant):
        times = measured(problem, schedules(problem, options.points), options.rounds)
        for kind, (same, best, schedule) in compared(problem, times).items():
            found[kind].append((median(same), median(best)))
            steps = " / ".join(map(str, schedule.steps))
            name = f"{problem.canonical:<64} {kind:<12}"
            print(f"{name} {spread(same):>18} {spread(best):>18}  {steps}", flush=True)
    for kind, ratios in found.items():
        same, best = (exp(mean(map(log, column))) for column in zip(*ratios, strict=True))
        print(f"{kind}: same {same:.3f}, best {best:.3f}, geometric means of {len(ratios)}")


def problems(names: list[str], is_constant: bool) -> list[Problem]:
    """Those of the suites, and those named themselves."""
    texts: list[str] = []
    for name in names:
        is_suite = (path := SUITES / f"{name}.json").exists()
        entries = read_suite(path).entries if is_suite else ()
        texts += [entry.problem.canonical for entry in entries] if is_suite else [name]
    constant = ",weights=constant" if is_constant else ""
    return [parse_problem(text + constant) for text in texts]


def schedules(problem: Problem, most: int) -> list[Schedule]:
    """Those of the model's first points, with the step and without it."""
    space = Space(problem, resolve("host"))
    found: dict[Schedule, None] = {}
    for point in prior_points(AnalyticalModel.shipped(space), most):
        for is_fetched in space.values("prefetch"):
            schedule = space.schedule(point | {"prefetch": is_fetched})
            found |= {schedule: None, without(schedule): None}
    return list(found)


def without(schedule: Schedule) -> Schedule:
    """The schedule without the step."""
    return Schedule(tuple(s for s in schedule.steps if not isinstance(s, Prefetch)))


def kind_of(problem: Problem, schedule: Schedule) -> str:
    """What the step does in a schedule; empty for one that does not have it."""
    nest = loop_nest(problem, schedule)
    stage = nest.stage("B")
    if not nest.fetches:
        return ""
    if nest.is_skinny:
        return "sweep" if nest.tile.rows == nest.extent(nest.row) else "shared"
    if nest.algorithm:
        return "transformed"
    if not stage:
        return "in place"
    return "panels" if stage.is_ahead else "packed next"


def measured(problem: Problem, some: list[Schedule], rounds: int) -> Times:
    """Seconds of the fastest of each kind and of those without the step, round by round."""
    target, operands = resolve("host"), make_operands(problem, 0)
    runs: dict[Schedule, Any] = {}
    for schedule in some:
        with suppress(KernelsError):  # the target lacks what it asks for
            runs[schedule] = lower(problem, schedule, target).bind(operands)
    screened = timed(runs, SCREENING_ROUNDS)
    ranked, kept = sorted(runs, key=lambda s: median(screened[s])), dict[str, list[Schedule]]()
    for schedule in ranked:
        kept.setdefault(kind_of(problem, schedule), []).append(schedule)
    finalists = {s for of_kind in kept.values() for s in of_kind[:KEPT]}
    finalists |= {without(s) for s in finalists} & set(runs)
    return timed({schedule: runs[schedule] for schedule in finalists}, rounds)


def timed(runs: dict[Schedule, Any], rounds: int) -> Times:
    """Seconds of each, round by round."""
    samples = interleave(list(runs.values()), rounds)
    return {schedule: taken.times for schedule, taken in zip(runs, samples, strict=True)}


def compared(
    problem: Problem, times: Times
) -> dict[str, tuple[list[float], list[float], Schedule]]:
    """For each kind the ratios `same` and `best`, and its fastest schedule."""
    ranked = sorted(times, key=lambda schedule: median(times[schedule]))
    kinds = {schedule: kind_of(problem, schedule) for schedule in ranked}
    found = {}
    for kind in dict.fromkeys(filter(None, kinds.values())):
        fastest = next(schedule for schedule in ranked if kinds[schedule] == kind)
        other = next(schedule for schedule in ranked if kinds[schedule] != kind)
        same = ratios(times[without(fastest)], times[fastest])
        found[kind] = same, ratios(times[other], times[ranked[0]]), fastest
    return found


def ratios(slow: list[float], fast: list[float]) -> list[float]:
    return [one / other for one, other in zip(slow, fast, strict=True)]


def spread(ratios: list[float]) -> str:
    low, middle, high = quantiles(ratios, n=4)
    return f"{middle:.3f} ({low:.2f}-{high:.2f})"


if __name__ == "__main__":
    main()
