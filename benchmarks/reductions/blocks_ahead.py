"""What products gain by blocks of B that are fetched ahead, in place or to be packed.

    python -m benchmarks.reductions.blocks_ahead [PROBLEM ...] [--rounds 15]

Chunks of the reduction inside or outside of blocks of columns, register tiles by columns or by
rows, B packed or in place, with `prefetch` and without, beside PyTorch (MKL), all in the same
rounds on one core. GFLOP/s; the last column is over PyTorch.
"""

import argparse
from collections.abc import Iterator
from itertools import product
from typing import Literal

from benchmarks.reductions.shared_words import beside_onednn
from tilewise.bench.machine import processor
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Pack, Prefetch, Register, Schedule, Step, Stream, Tile, Unroll
from tilewise.kernels.target import Target, resolve

PROBLEMS = [
    f"matmul:m={m},n={n},k={k},dtype=f32"
    for m, n, k in ((35, 700, 2048), (128, 768, 3072), (128, 1500, 1280), (1024, 1024, 1024))
]
ROWS, VECTORS, PANELS, DEPTH, UNROLL = 8, 3, 2, 512, 4
Outer = Literal["cols", "rows"]
OUTER: tuple[Outer, ...] = ("cols", "rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(processor())
    for text in options.problems:
        print(table(parse_problem(text), options.rounds), flush=True)


def schedules(problem: Problem, target: Target) -> Iterator[tuple[str, Schedule]]:
    """What the table calls them, and the schedules."""
    cols = VECTORS * target.lanes(problem.element.name)
    tile, stream = Tile("n", PANELS * cols), Stream("k", DEPTH)
    for is_outside, outer in product((False, True), OUTER):
        loops = (stream, tile) if is_outside else (tile, stream)
        place = f"chunks {'outside' if is_outside else 'inside'}, by {outer}"
        for packs, fetches in product((True, False), repeat=2):
            copies: list[Step] = [Pack("B")] * packs + [Prefetch("B")] * fetches
            ways = ("packed" if packs else "in place", *(["fetched"] if fetches else []))
            register = Register(ROWS, cols, outer)
            yield (
                f"{place}, {', '.join(ways)}",
                Schedule((*loops, *copies, register, Unroll(UNROLL))),
            )


def table(problem: Problem, rounds: int) -> str:
    """All ways of one problem, the fastest of PyTorch's last."""
    target = resolve("host")
    return beside_onednn(problem, dict(schedules(problem, target)), target, rounds, "PyTorch")


if __name__ == "__main__":
    main()
