"""What panels of B gain by staying as narrow as they are stored, where nothing multiplies them so.

    python -m benchmarks.reductions.narrow_panels [PROBLEM ...] [--rounds 9]

The first schedule of the analytical model that packs B, with panels of f32 and with narrow ones, in
the same rounds on one core. GFLOP/s; both are one code for different second caches, beyond which
panels stay narrow. On a processor that multiplies bf16 itself, give problems of f16.
"""

import argparse
from dataclasses import replace
from statistics import median

from benchmarks.reductions.read_in_place import check
from tilewise.bench.machine import processor
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native import lower
from tilewise.kernels.native.microbench import peak_gflops
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.target import resolve
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space
from tilewise.search.timing.measure import interleave

LAYERS = [
    f"matmul:m={m},n={n},k=4096,dtype=bf16{weights}"
    for weights in (",weights=constant", "")
    for m, n in ((8, 4096), (16, 4096), (16, 11008), (32, 4096), (64, 11008), (192, 4096))
    if weights or m <= 32
]
PROPOSALS = 8
ALL_NEAR, ALL_FAR = 1 << 62, 1  # bytes of a second cache


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=LAYERS)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(f"{processor()}\n{HEADER}", flush=True)
    for text in options.problems:
        print(row(parse_problem(text), options.rounds), flush=True)


HEADER = f"{'problem':<56} {'f32':>7} {'narrow':>7} {'ratio':>6} {'peak':>7}  steps"


def row(problem: Problem, rounds: int) -> str:
    """One schedule with panels of either width."""
    target, operands = resolve("host"), make_operands(problem, 0)
    schedule = first_that_packs(problem)
    ways = [
        lower(problem, schedule, replace(target, l2_bytes=size)).bind(operands)
        for size in (ALL_NEAR, ALL_FAR)
    ]
    check(problem, operands, ways)
    times = [median(samples.times) for samples in interleave(ways, rounds)]
    wide, narrow = (problem.flops / seconds / 1e9 for seconds in times)
    peak = peak_gflops(target, problem.element.name)
    steps = " / ".join(map(str, schedule.steps))
    return (
        f"{problem.canonical:<56} {wide:>7.1f} {narrow:>7.1f} {narrow / wide:>6.2f} "
        f"{peak:>7.1f}  {steps}"
    )


def first_that_packs(problem: Problem) -> Schedule:
    """The first proposal of the analytical model whose micro-kernel reads panels of B."""
    space = Space(problem, resolve("host"))
    for point in prior_points(AnalyticalModel.shipped(space), PROPOSALS):
        schedule = space.schedule(point)
        if loop_nest(problem, schedule).stage("B"):
            return schedule
    raise LoweringError(f"{problem}: none of the first {PROPOSALS} proposals packs B; give more m")


if __name__ == "__main__":
    main()
