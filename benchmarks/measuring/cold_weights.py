"""Products with constant weights: hot, and with cold weights.

    python -m benchmarks.measuring.cold_weights [PROBLEM ...] [--rounds 31] [--model-mib 340]

Listed schedules of one core: the direct product, and products by one and by two levels of
quadrants. In the same rounds a loop of multiply-adds on registers runs, and speeds are shares of
its median. They count the multiply-adds of the direct method, so that they can exceed 100%. `hot`
calls one kernel again and again. `cold` calls it in turns over copies of its packed weights,
in pages of 2 MiB, as a model has them whose weights take so many MiB before they are packed; its
other operands and its scratch stay where they are. `products` is the share of the multiply-adds
that are really made, of calls with cold weights.
"""

import argparse
from statistics import median, quantiles

import numpy as np

from benchmarks.reductions.read_in_place import check
from tilewise.bench.machine import processor
from tilewise.kernels.fast_algorithms import STRASSEN
from tilewise.kernels.native import lower
from tilewise.kernels.native.microbench import multiplier
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Pack, Prefetch, Register, Schedule, Step, Strassen, Unroll
from tilewise.kernels.target import Target, resolve
from tilewise.search.networks.cold_weights import bytes_of_weights, in_turns
from tilewise.search.timing.measure import interleave
from tilewise.search.timing.samples import Run, Samples

PROBLEMS = [
    f"matmul:m=128,n={n},k={k},dtype=f32,bias,weights=constant"
    for n, k in ((768, 768), (3072, 768), (768, 3072))
]
REGISTERS = ((8, 32), (8, 48))
PEAK_STEPS = 40_000
HEADER = f"{'levels':>8} {'tile':>6} {'hot':>16} {'cold':>16} {'products':>9}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--model-mib", type=int, default=340, help="340: BERT-base in f32")
    options = parser.parse_args()
    target = resolve("host")
    print(f"{processor()}, {target.canonical}", flush=True)
    for text in options.problems:
        for line in table(parse_problem(text), target, options.rounds, options.model_mib << 20):
            print(line, flush=True)


def table(problem: Problem, target: Target, rounds: int, model_bytes: int) -> list[str]:
    """The rows of one problem, whose results are checked before they are timed."""
    listed = [
        (levels, register, schedule(levels, *register))
        for levels in (0, 1, 2)
        for register in REGISTERS
    ]
    operands = make_operands(problem, 0)
    copies = -(-model_bytes // bytes_of_weights([problem]))
    runs: list[Run] = []
    for _, _, one in listed:
        executable = lower(problem, one, target)
        hot = executable.bind(operands)
        cold = in_turns(executable, operands, copies)
        check(problem, operands, [hot, cold])
        runs += [hot, cold]
    multiply_adds, operations = peak_loop(target)
    *taken, loop = interleave([*runs, multiply_adds], rounds)
    peak = operations / median(loop.times)
    said = [f"\n{problem.canonical}, peak {peak / 1e9:.0f} GFLOP/s", HEADER]
    for (levels, (rows, cols), _), hot, cold in zip(listed, taken[::2], taken[1::2], strict=True):
        made = (STRASSEN.products / 8) ** levels * problem.flops / median(cold.times) / peak
        said.append(
            f"{levels or 'direct':>8} {f'{rows}x{cols}':>6} {share(problem, hot, peak):>16} "
            f"{share(problem, cold, peak):>16} {made:>9.0%}"
        )
    return said


def schedule(levels: int, rows: int, cols: int) -> Schedule:
    """One that fetches panels of B, packed ahead, by so many levels of quadrants."""
    steps: tuple[Step, ...] = (Pack("B"), Prefetch("B"))
    if levels:
        steps = (Strassen(levels), *steps, Pack("A"))
    return Schedule((*steps, Register(rows, cols), Unroll(4)))


def peak_loop(target: Target) -> tuple[Run, int]:
    """A run of multiply-adds on registers, and its operations."""
    call, operations = multiplier(target, "f32")
    work = np.ones(target.vector_bytes, np.uint8)

    def run(times: int = 1) -> None:
        call(work.ctypes.data, times * PEAK_STEPS)

    return run, operations * PEAK_STEPS


def share(problem: Problem, samples: Samples, peak: float) -> str:
    """Of the peak: the median and its quartiles."""
    slow, middle, fast = (problem.flops / q / peak for q in quantiles(samples.times, n=4)[::-1])
    return f"{middle:.0%} ({slow:.0%}, {fast:.0%})"


if __name__ == "__main__":
    main()
