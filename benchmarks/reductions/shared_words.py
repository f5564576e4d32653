"""What sweeps of few rows gain by joining words of B once for all register tiles.

    python -m benchmarks.reductions.shared_words [PROBLEM ...] [--rounds 7]

A tile of all rows and one vector joins words by itself, since no other tile needs them; tiles of
whole lines share them. Beside both, small blocks that are packed while the next is fetched, and
oneDNN, all in the same rounds on one core. GFLOP/s.
"""

import argparse
from collections.abc import Mapping
from statistics import median

from benchmarks.reductions.read_in_place import check
from tilewise.bench.machine import processor
from tilewise.kernels.native import lower
from tilewise.kernels.native.microbench import peak_gflops
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Prefetch,
    Register,
    Schedule,
    Skinny,
    Stream,
    Tile,
    Unroll,
)
from tilewise.kernels.target import Target, resolve
from tilewise.search.peers import onednn
from tilewise.search.timing.measure import interleave

LAYERS = [f"matmul:m=16,n={n},k=4096,dtype=i8" for n in (4096, 11008)]
SHARED = ((4, 4, 32), (6, 4, 32), (3, 8, 32), (2, 8, 64), (4, 4, 64), (6, 4, 64))
"""Rows and vectors of a tile, and rows of B side by side."""
FETCHED = ((4, 4, 32), (4, 4, 64), (2, 8, 64))
"""Those that are also timed with the step `prefetch`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=LAYERS)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(processor())
    for text in options.problems:
        print(table(parse_problem(text), options.rounds), flush=True)


def schedules(problem: Problem, target: Target) -> dict[str, Schedule]:
    """By what the table calls them."""
    lanes, rows = target.lanes(problem.element.name), problem.operand_shapes["C"][-2]
    alone = Schedule((Stream("k", 32), Register(rows, lanes), Skinny("n")))
    block = (Tile("n", 256), Stream("k", 64), Pack("B"), Prefetch("B"), Pack("A"))
    found = {f"sweep {rows}x1, 32": alone}
    for tall, wide, depth in SHARED:
        tile = Register(tall, wide * lanes, "rows")
        name, stream = f"sweep {tall}x{wide}, {depth}", Stream("k", depth)
        found[name] = Schedule((stream, tile, Skinny("n")))
        if (tall, wide, depth) in FETCHED:
            found[f"{name}, prefetch"] = Schedule((stream, Prefetch("B"), tile, Skinny("n")))
    found["block 256x64, 4x4"] = Schedule((*block, Register(4, 4 * lanes), Unroll(4)))
    return found


def table(problem: Problem, rounds: int) -> str:
    """All ways of one problem, the fastest of oneDNN's last."""
    target = resolve("host")
    return beside_onednn(problem, schedules(problem, target), target, rounds, "oneDNN")


def beside_onednn(
    problem: Problem, named: Mapping[str, Schedule], target: Target, rounds: int, peer_name: str
) -> str:
    """GFLOP/s of schedules and their ratios to the fastest of oneDNN's ways, which comes last.

    Args:
        problem: what all compute.
        named: the schedules.
        target: where.
        rounds: interleaved ones.
        peer_name: what the line of oneDNN is called.
    """
    operands = make_operands(problem, 0)
    ways = [lower(problem, schedule, target).bind(operands) for schedule in named.values()]
    check(problem, operands, ways)
    peers = [variant.run for variant in onednn.variants(problem, operands, target.threads)]
    times = [median(samples.times) for samples in interleave([*ways, *peers], rounds)]
    speeds = [problem.flops / seconds / 1e9 for seconds in times]
    peer, width = max(speeds[len(ways) :]), max(map(len, named))
    rows = [
        f"  {name:<{width}} {speed:>7.1f} {speed / peer:>6.2f}"
        for name, speed in zip(named, speeds, strict=False)
    ]
    peak = peak_gflops(target, problem.element.name)
    head = f"{problem.canonical}, peak {peak:.0f}"
    return "\n".join([head, *rows, f"  {peer_name:<{width}} {peer:>7.1f}"])


if __name__ == "__main__":
    main()
