"""What fetching panels of B ahead gains, where few rows read weights that were packed ahead.

    python -m benchmarks.reductions.panels_ahead [PROBLEM ...] [--rounds 21]

The first schedule of the analytical model that has the step `prefetch`, with it and without, beside
the peers and loops that load every vector of B once and do nothing else, in the same rounds on one
core. GFLOP/s; `limit` is the peak of the multiply-adds, or what the loops' bandwidth allows where
that is less. For a filter that is transformed neither is a limit: products are saved.
"""

import argparse
from typing import Any

from benchmarks.kernels.streaming import STREAMS, fastest_peers, reading
from benchmarks.reductions.read_in_place import check
from tilewise.bench.machine import processor
from tilewise.kernels.native import lower
from tilewise.kernels.native.microbench import peak_gflops
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Prefetch, Schedule, loop_nest
from tilewise.kernels.target import resolve
from tilewise.search.model.analytical import Model
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space
from tilewise.search.timing.interleave import interleave
from tilewise.search.timing.summary import summarise

LAYERS = [
    f"matmul:m={m},n={n},k={k},dtype={dtype},weights=constant"
    for dtype in ("bf16", "i8", "f32")
    for m, n, k in ((4, 11008, 4096), (8, 11008, 4096), (16, 11008, 4096), (16, 4096, 11008),
                    (16, 1024, 4096), (64, 11008, 4096), (128, 11008, 4096))
]  # fmt: skip
FILTERS = [
    f"conv2d:n=1,h={h},w={h},ci={ci},co={co},kh={kh},kw={kh},dtype=f32,weights=constant{more}"
    for h, ci, co, kh, more in ((7, 2048, 512, 1, ""), (7, 512, 2048, 1, ""),
                                (14, 1024, 2048, 1, ",stride=2"), (14, 256, 256, 3, ",pad=1"),
                                (7, 512, 512, 3, ",pad=1"))
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=LAYERS + FILTERS)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    print(f"{processor()}\n{HEADER}", flush=True)
    for text in options.problems:
        print(row(parse_problem(text), options.rounds), flush=True)


HEADER = f"{'problem':<74} {'without':>8} {'with':>7} {'ratio':>6} {'limit':>7} {'peer':>7}  steps"


def row(problem: Problem, rounds: int) -> str:
    """The schedule both ways, the limit, and the fastest peer, in turn."""
    target, operands = resolve("host"), make_operands(problem, 0)
    space = Space(problem, target)
    points = (space.schedule(point) for point in prior_points(Model.shipped(space), 48))
    found = next((one for one in points if loop_nest(problem, one).fetches), None)
    if found is None:
        raise SystemExit(f"{problem}: the model proposes no prefetch; give a larger B")
    plain = Schedule(tuple(s for s in found.steps if not isinstance(s, Prefetch)))
    ways: list[Any] = [lower(problem, s, target).bind(operands) for s in (plain, found)]
    check(problem, operands, ways)
    reads = [reading(target, operands["B"], streams) for streams in STREAMS]
    peers = fastest_peers(problem, operands, reference(problem, operands))
    taken = interleave([*ways, *reads, *peers], rounds)
    speeds = [summarise(samples.times, problem.flops).gflops for samples in taken]
    without, ahead = speeds[:2]
    read, theirs = max(speeds[2 : 2 + len(reads)]), speeds[2 + len(reads) :]
    limit = min(read, peak_gflops(target, problem.element.name))
    peer = f"{max(theirs):>7.1f}" if theirs else f"{'none':>7}"
    return (
        f"{problem.canonical:<74} {without:>8.1f} {ahead:>7.1f} {ahead / without:>6.2f} "
        f"{limit:>7.1f} {peer}  {' / '.join(map(str, found.steps))}"
    )


if __name__ == "__main__":
    main()
