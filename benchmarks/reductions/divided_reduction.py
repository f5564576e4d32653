"""What would two threads gain if they divided the reduction, where results are small?

    python -m benchmarks.reductions.divided_reduction [PROBLEM ...] [--trials 32] [--rounds 61]

A product with its reduction divided is a batch of two products of half the depth, but for the sum
of both results, which are small here. So the batch stands for it. Each way of dividing runs the
best schedule that a search on one thread finds for a part: of half the rows (`m`), of half the
columns (`n`), of half the reduction (`k`). All run in the same rounds, beside one thread (`one`);
GFLOP/s of the fastest fifth, since a neighbour on either core delays both threads, and 0 where the
steps of a part cannot serve the whole. `k reads` is what the threads read together, in GB/s.
"""

import argparse
import tempfile
from contextlib import suppress
from dataclasses import replace

from benchmarks.kernels.threads import best_steps
from tilewise.bench.machine import processor
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.native import lower
from tilewise.kernels.native.executable import KernelCall
from tilewise.kernels.native.microbench import bandwidth_gbs
from tilewise.kernels.oracle.operands import make_operands, poison
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Matmul, parse_problem
from tilewise.kernels.schedule import Parallel, Prefetch, Schedule, Step, Tile
from tilewise.kernels.target import Target, resolve
from tilewise.search.timing.measure import interleave

PROBLEMS = (
    "matmul:m=1,n=1,k=1048576,dtype=f32",
    "matmul:m=4,n=4,k=262144,dtype=f32,transpose_b",
    "matmul:m=16,n=16,k=65536,dtype=f32",
    "matmul:m=32,n=32,k=65536,dtype=f32",
    "matmul:m=64,n=64,k=65536,dtype=f32",
    "matmul:m=1,n=64,k=16384,dtype=f32",
    "matmul:m=1,n=256,k=16384,dtype=f32",
    "matmul:m=8,n=64,k=16384,dtype=f32",
    "matmul:m=27,n=64,k=50176,dtype=f32,transpose_a",
)
THREADS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--db", help="default: an empty one")
    options = parser.parse_args()
    target = resolve(f"cpu:host,threads={THREADS}")
    memory = bandwidth_gbs(target)
    print(f"{processor()}, {target.canonical}; memory {memory:.0f} GB/s\n{HEADER}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        url = options.db or f"sqlite:///{folder}/results.db"
        for text in options.problems:
            problem = parse_problem(text)
            assert isinstance(problem, Matmul)
            print(row(problem, target, url, options), flush=True)


HEADER = (
    f"{'problem':<48} {'one':>6} {'m':>6} {'n':>6} {'k':>6} {'k / best other':>15} {'k reads':>9}"
)


def row(problem: Matmul, target: Target, url: str, options: argparse.Namespace) -> str:
    """One problem's speeds."""
    one = target.with_threads(1)
    ways = {"one": call_of(problem, one, steps_of(problem, url, options.trials))}
    for dim, extent in (("m", problem.m), ("n", problem.n)):
        if extent > 1:
            part = replace(problem, **{dim: -(-extent // THREADS)})
            steps = (Parallel(dim, THREADS), *steps_of(part, url, options.trials))
            with suppress(ScheduleError):  # what sweeps has all rows
                ways[dim] = call_of(problem, target, steps)
    part = replace(problem, k=problem.k // THREADS)
    steps = (
        Parallel("batch", THREADS), Tile("batch", 1), *steps_of(part, url, options.trials),
    )  # fmt: skip
    ways["k"] = call_of(replace(part, batch=THREADS), target, steps)
    taken = interleave(list(ways.values()), options.rounds, THREADS)
    speeds = {
        name: problem.flops / sorted(samples.times)[len(samples.times) // 5] / 1e9
        for name, samples in zip(ways, taken, strict=True)
    }
    best = max(speed for name, speed in speeds.items() if name != "k")
    shown = " ".join(f"{speeds.get(name, 0.0):>6.1f}" for name in ("one", "m", "n", "k"))
    reads = problem.bytes * speeds["k"] / problem.flops  # GB in a second
    return f"{problem.canonical:<48} {shown} {speeds['k'] / best:>15.2f} {reads:>9.0f}"


def steps_of(part: Matmul, url: str, trials: int) -> tuple[Step, ...]:
    """The best steps of a part on one thread; a part of another has no next block to prefetch."""
    found = best_steps(part.canonical, resolve("host").canonical, trials, url)
    return tuple(s for s in Schedule.from_json(found).steps if not isinstance(s, Prefetch))


def call_of(problem: Matmul, target: Target, steps: tuple[Step, ...]) -> KernelCall:
    """A schedule's call, checked once."""
    operands = make_operands(problem, 0)
    call = lower(problem, Schedule(steps), target).bind(operands)
    poison(operands["C"])
    call()
    error, tolerance = compare(problem, operands["C"], reference(problem, operands))
    if not error <= tolerance:
        raise SystemExit(f"{problem}: the deviation is {error:.3g}, allowed is {tolerance:.3g}")
    return call


if __name__ == "__main__":
    main()
