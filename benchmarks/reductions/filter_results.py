"""Results of Winograd transforms that go past the caches, beside those that are written to them.

    python -m benchmarks.reductions.filter_results [PROBLEM ...] [--rounds 15] [--cache hot|cold]

F(4x4,3x3) in two register tiles, each with the step `nontemporal` and without, all in the same
rounds of one process, on one core. Milliseconds; `next` is the time of two layers, the second of
which reads what the first has written.
"""

import argparse
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.reductions.read_in_place import check
from tilewise.bench.machine import processor
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import Operands, make_operands
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import (
    Nontemporal,
    Pack,
    Prefetch,
    Register,
    Schedule,
    Step,
    Tile,
    Winograd,
)
from tilewise.kernels.target import Target, resolve
from tilewise.search.timing.cold import ColdMode, cold_mode, largest_cache
from tilewise.search.timing.measure import interleave

SIZES = (
    "n=5,h=80,w=100,ci=128,co=128",
    "n=1,h=112,w=112,ci=128,co=128",
    "n=1,h=56,w=56,ci=256,co=256",
    "n=1,h=28,w=28,ci=256,co=256",
)
PROBLEMS = tuple(f"conv2d:{size},kh=3,kw=3,pad=1,dtype=f32,weights=constant" for size in SIZES)
FORMS = ((6, 4, 24), (14, 2, 28))  # rows, vectors, tiles of a block
RUN_S = 0.02  # about; for the cold mode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cache", choices=("hot", "cold"), default="hot")
    options = parser.parse_args()
    target = resolve("host")
    print(f"{processor()}, {options.cache}\n{HEADER}")
    for text in options.problems:
        cold = one_at_a_time(target) if options.cache == "cold" else None
        for line in table(parse_problem(text), target, options.rounds, cold):
            print(line, flush=True)


def one_at_a_time(target: Target) -> ColdMode:
    """Caches that are emptied before each run."""
    return replace(cold_mode(RUN_S, 0, largest_cache(target)), copies=1, spare=0)


def table(problem: Problem, target: Target, rounds: int, cold: ColdMode | None) -> list[str]:
    """A line for each register tile."""
    first, second = make_operands(problem, 0), make_operands(problem, 1)
    ways = [way for form in FORMS for way in of_form(problem, target, form, first)]
    check(problem, first, ways)
    runs = [*ways]
    if first["A"].shape == first["C"].shape:
        second["A"] = first["C"]
        behind = [way for form in FORMS for way in of_form(problem, target, form, second)]
        runs += map(one_behind_the_other, ways, behind)
    times = [median(samples.times) * 1e3 for samples in interleave(runs, rounds, cold=cold)]
    lines = []
    for number, (rows, vectors, tiles) in enumerate(FORMS):
        at = [*range(2 * number, len(runs), 2 * len(FORMS))]
        found = "".join(f"{times[i]:>9.3f}{times[i + 1]:>9.3f}" for i in at)
        shape = f"{rows}x{vectors * target.lanes('f32')}"
        lines.append(f"{problem.canonical:<78}{shape:>6}{tiles:>6}{found}")
    return lines


def of_form(
    problem: Problem, target: Target, form: tuple[int, int, int], operands: Operands
) -> list[Any]:
    """The calls that write to the caches, and past them."""
    rows, vectors, tiles = form
    steps: tuple[Step, ...] = (Winograd(4), Pack("B"), Prefetch("B"), Tile("t", tiles), Pack("A"))
    steps += (Register(rows, vectors * target.lanes("f32")),)
    both = (Schedule(steps), Schedule((*steps, Nontemporal())))
    return [lower(problem, schedule, target).bind(operands) for schedule in both]


def one_behind_the_other(first: Any, second: Any) -> Any:
    """A run of both, so many times."""

    def run(repeat: int = 1) -> None:
        for _ in range(repeat):
            first(1)
            second(1)

    return run


HEADER = f"{'problem':<78}{'tile':>6}{'block':>6}{'cached':>9}{'past':>9}{'next':>9}{'past':>9}"


if __name__ == "__main__":
    main()
