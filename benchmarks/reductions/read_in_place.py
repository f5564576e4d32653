"""What packing a transposed B costs, where few rows use it.

    python -m benchmarks.reductions.read_in_place [PROBLEM ...] [--trials 32] [--db URL]

The best schedule of a search, which may read B along the reduction and add up partial sums (the
step `split`), beside the fastest that searches found while all packed B for more than four rows,
with its script and with the peers, in the same rounds on one core. GFLOP/s.
"""

import argparse
import tempfile
from typing import Any

from benchmarks.kernels.scripts import compiled_script
from benchmarks.kernels.threads import best_steps
from tilewise.bench.machine import processor
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import Operands, make_operands, poison
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Step, Stream, Tile, Unroll
from tilewise.kernels.target import resolve
from tilewise.search.peers import available_peers
from tilewise.search.timing.measure import interleave
from tilewise.search.timing.samples import summarise

PACKED = {
    "matmul:m=8,n=4096,k=4096,dtype=f32,transpose_b": "n 32, k 1024, B, 8x32 cols, 4",
    "matmul:m=8,n=4096,k=4096,dtype=bf16,transpose_b": "n 32, k 2048, B, 8x32 rows, 8",
    "matmul:m=8,n=4096,k=4096,dtype=i8,transpose_b": "n 64, B, A, 8x32 cols",
    "matmul:m=32,n=1024,k=4096,dtype=bf16,transpose_b": "n 32, B, 8x32 cols, 2",
    "matmul:m=32,n=1024,k=1024,dtype=i8,transpose_b": "n 256, B, m 16, A, 8x32 rows, 8",
    "matmul:m=8,n=64,k=4096,dtype=f32,transpose_b": "n 32, k 128, B, 8x32 cols, 8",
    "matmul:m=16,n=16,k=65536,dtype=f32,transpose_b": "k 128, B, 8x16 cols",
    "matmul:m=32,n=512,k=1024,dtype=f32,transpose_b": "n 64, B, 8x32 rows, 8",
    "matmul:m=128,n=768,k=768,dtype=f32,transpose_b": "n 32, B, 8x32 cols, 8",
}
"""Winners of searches of 40 to 48 trials on a Zen 5 core: blocks, packs, the tile, unrolling."""
ROUNDS = 21


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=tuple(PACKED))
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--db", help="default: an empty one")
    options = parser.parse_args()
    print(f"{processor()}\n{HEADER}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        url = options.db or f"sqlite:///{folder}/results.db"
        for text in options.problems:
            steps = best_steps(text, resolve("host").canonical, options.trials, url)
            found = Schedule.from_json(steps)
            print(row(parse_problem(text), packed(text), found), flush=True)


HEADER = f"{'problem':<52} {'packed':>7} {'now':>8} {'ratio':>6} {'script':>7} {'peer':>7}  steps"


def packed(text: str) -> Schedule:
    """The schedule that `PACKED` has for a problem."""
    steps: list[Step] = []
    for word in PACKED[text].split(", "):
        name, _, rest = word.partition(" ")
        if name in ("m", "n"):
            steps.append(Tile(name, int(rest)))
        elif name == "k":
            steps.append(Stream(name, int(rest)))
        elif name in ("A", "B"):
            steps.append(Pack("A" if name == "A" else "B"))
        elif rest:
            rows, cols = map(int, name.split("x"))
            steps.append(Register(rows, cols, "rows" if rest == "rows" else "cols"))
        else:
            steps.append(Unroll(int(name)))
    return Schedule(tuple(steps))


def row(problem: Problem, before: Schedule, found: Schedule) -> str:
    """Both schedules, the script and the peers of a problem, in turn."""
    target, operands = resolve("host"), make_operands(problem, 0)
    ways: list[Any] = [lower(problem, s, target).bind(operands) for s in (before, found)]
    ways.append(compiled_script(problem, found, operands)[0])
    check(problem, operands, ways)
    peers = [peer.run for peer in available_peers(problem, operands, 1)]
    taken = interleave([*ways, *peers], ROUNDS)
    speeds = [summarise(samples.times, problem.flops).gflops for samples in taken]
    first, second, script, *theirs = speeds
    peer = f"{max(theirs):>7.1f}" if theirs else f"{'none':>7}"
    return (
        f"{problem.canonical:<52} {first:>7.1f} {second:>8.1f} {second / first:>6.2f} "
        f"{script:>7.1f} {peer}  {' / '.join(map(str, found.steps))}"
    )


def check(problem: Problem, operands: Operands, ways: list[Any]) -> None:
    """Compare one run of each with the reference."""
    expected = reference(problem, operands)
    for way in ways:
        poison(operands["C"])
        way(1)
        error, tolerance = compare(problem, operands["C"], expected)
        if not error <= tolerance:
            raise SystemExit(f"{problem}: off by {error:.3g}, tolerance {tolerance:.3g}")


if __name__ == "__main__":
    main()
