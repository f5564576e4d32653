"""Register tiles of Winograd transforms where the transformed filter streams from the last cache.

    python -m benchmarks.reductions.filter_tiles [PROBLEM ...] [--rounds 15]

Each tile with the step `prefetch` and without, all tiles in the same rounds of one process, on one
core. GFLOP/s of the direct method's multiply-adds.
"""

import argparse
from typing import Any

from benchmarks.reductions.read_in_place import check
from tilewise.bench.machine import processor
from tilewise.kernels.native import lower
from tilewise.kernels.native.microbench import peak_gflops
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Pack, Prefetch, Register, Schedule, Step, Winograd, begin
from tilewise.kernels.steps.algorithm import TILES
from tilewise.kernels.target import resolve
from tilewise.search.space.algorithms import outputs_of
from tilewise.search.space.workload import Workload
from tilewise.search.timing.measure import interleave
from tilewise.search.timing.samples import summarise

PROBLEMS = (
    "conv2d:n=1,h=7,w=7,ci=512,co=512,kh=3,kw=3,pad=1,dtype=f32,weights=constant",
    "conv2d:n=1,h=14,w=14,ci=256,co=256,kh=3,kw=3,pad=1,dtype=f32,weights=constant",
)
SHAPES = ((4, 4), (6, 4), (8, 2), (8, 3), (16, 1))  # rows, vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(processor())
    for text in options.problems:
        for line in table(parse_problem(text), options.rounds):
            print(line, flush=True)


def table(problem: Problem, rounds: int) -> list[str]:
    """The lines of one problem: every tile, with its speeds."""
    target, operands = resolve("host"), make_operands(problem, 0)
    lanes = target.lanes(problem.element.name)
    forms = [
        (output, rows, vectors)
        for output in outputs_of(Workload(problem, target))
        for rows, vectors in SHAPES
        if rows <= begin(problem, Winograd(output)).dim(TILES).extent
    ]
    ways: list[Any] = [
        lower(problem, steps(output, rows, vectors * lanes, fetches), target).bind(operands)
        for output, rows, vectors in forms
        for fetches in (False, True)
    ]
    check(problem, operands, ways)
    taken = interleave(ways, rounds)
    speeds = [summarise(samples.times, problem.flops).gflops for samples in taken]
    peak = peak_gflops(target, problem.element.name)
    lines = [f"{problem.canonical}, peak {peak:.0f}", HEADER]
    for form, without, fetched in zip(forms, speeds[::2], speeds[1::2], strict=True):
        output, rows, vectors = form
        lines.append(f"{output:>6} {rows:>5} {vectors * lanes:>5} {without:>8.0f} {fetched:>8.0f}")
    return lines


HEADER = f"{'output':>6} {'rows':>5} {'cols':>5} {'without':>8} {'fetched':>8}"


def steps(output: int, rows: int, cols: int, fetches: bool) -> Schedule:
    """Winograd transforms of all tiles at once."""
    ahead: list[Step] = [Prefetch("B")] if fetches else []
    return Schedule((Winograd(output), Pack("B"), *ahead, Pack("A"), Register(rows, cols)))


if __name__ == "__main__":
    main()
