"""What a sweep gains by reading several parts of the reduction, each from end to end.

    python -m benchmarks.reductions.streams_apart [PROBLEM ...] [--rounds 9]

Every sweep of all rows that the search offers, of neighbouring rows and of streams apart, with and
without prefetch, beside loops that load every vector of B once and do nothing else, in the same
rounds on one core. GB/s of B; `share` is of the fastest of the loops.
"""

import argparse
from statistics import median
from typing import Any

from benchmarks.kernels.streaming import STREAMS, reading
from benchmarks.reductions.read_in_place import check
from kernels.native import lower
from kernels.oracle.operands import make_operands
from kernels.problem import Matmul, parse_problem
from kernels.schedule import Prefetch, Schedule
from kernels.target import resolve
from search.model.kinds_of_points import swept_points
from search.space.space import Space
from search.timing.interleave import interleave
from tilewise.bench.machine import processor

LAYERS = [
    f"matmul:m=1,n={n},k={k},dtype={dtype}"
    for n, k in ((4096, 11008), (11008, 4096), (4096, 4096))
    for dtype in ("bf16", "i8", "f16", "f32")
] + [f"matmul:m=1,n={n},k={k},dtype=f32" for n, k in ((1000, 1000), (512, 4096), (400, 500))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=LAYERS)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(f"{processor()}\n{HEADER}", flush=True)
    for text in options.problems:
        print(row(text, options.rounds), flush=True)


HEADER = (
    f"{'problem':<38} {'read':>6} {'neighbours':>10} {'share':>6} {'apart':>6} {'share':>6}  steps"
)


def row(text: str, rounds: int) -> str:
    """The best sweep of either kind, as a share of the reads."""
    problem, target = parse_problem(text), resolve("host")
    assert isinstance(problem, Matmul)
    operands = make_operands(problem, 0)
    sweeps = offered(problem, Space(problem, target))
    if not any(sweep.streams > 1 for sweep in sweeps):
        raise SystemExit(f"{text}: no sweep has streams apart; give a larger B, and m=1")
    ways: list[Any] = [lower(problem, sweep, target).bind(operands) for sweep in sweeps]
    check(problem, operands, ways)
    reads = [reading(target, operands["B"], streams) for streams in STREAMS]
    taken = interleave([*ways, *reads], rounds)
    speeds = [operands["B"].nbytes / median(samples.times) / 1e9 for samples in taken]
    read = max(speeds[len(sweeps) :])
    of_sweeps = list(zip(speeds[: len(sweeps)], sweeps, strict=True))
    near = max(speed for speed, sweep in of_sweeps if sweep.streams == 1)
    apart, best = max(
        ((speed, sweep) for speed, sweep in of_sweeps if sweep.streams > 1), key=lambda x: x[0]
    )
    return (
        f"{text:<38} {read:>6.1f} {near:>10.1f} {near / read:>6.0%} {apart:>6.1f} "
        f"{apart / read:>6.0%}  {' / '.join(map(str, best.steps))}"
    )


def offered(problem: Matmul, space: Space) -> list[Schedule]:
    """All sweeps of all rows at once, with and without prefetch."""
    found: dict[Schedule, None] = {}
    for point in swept_points(space):
        sweep = space.schedule(point)
        if sweep.register.rows == problem.m:
            at = sweep.steps.index(sweep.register)
            found[sweep] = None
            found[Schedule((*sweep.steps[:at], Prefetch("B"), *sweep.steps[at:]))] = None
    return list(found)


if __name__ == "__main__":
    main()
