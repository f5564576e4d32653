"""What a sweep gains by reading several parts of the reduction, each from end to end.

    python -m benchmarks.reductions.streams_apart [PROBLEM ...] [--rounds 9] [--all]

Every sweep of all rows that the search offers, of neighbouring rows and of streams apart, with and
without prefetch, beside loops that load every vector of B once and do nothing else, in the same
rounds on one core. GB/s of B; `share` is of the fastest of the loops. With `--all` a line of each
sweep follows, the fastest first: lines of a row at once, `w` rows side by side, `i` streams, and
`p` for the step `prefetch`.
"""

import argparse
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.kernels.streaming import STREAMS, reading
from benchmarks.reductions.read_in_place import check
from tilewise.bench.machine import processor
from tilewise.kernels.native import lower
from tilewise.kernels.nest import Nest
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Matmul, parse_problem
from tilewise.kernels.schedule import Prefetch, Register, Schedule, loop_nest
from tilewise.kernels.target import resolve
from tilewise.search.model.initial_candidates import skinny_points
from tilewise.search.space.space import Space
from tilewise.search.timing.measure import interleave

LAYERS = [
    f"matmul:m=1,n={n},k={k},dtype={dtype}"
    for n, k in ((4096, 11008), (11008, 4096), (4096, 4096))
    for dtype in ("bf16", "i8", "f16", "f32")
] + [f"matmul:m=1,n={n},k={k},dtype=f32" for n, k in ((1000, 1000), (512, 4096), (400, 500))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=LAYERS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--all", action="store_true", help="a line of each sweep")
    options = parser.parse_args()
    print(f"{processor()}\n{HEADER}", flush=True)
    for text in options.problems:
        read, speeds = measured(text, options.rounds)
        print(row(text, read, speeds), flush=True)
        if options.all:
            print("\n".join(listed(read, speeds)), flush=True)


HEADER = (
    f"{'problem':<38} {'read':>6} {'neighbours':>10} {'share':>6} {'apart':>6} {'share':>6}  steps"
)


Candidate = tuple[Schedule, Nest]
Speeds = list[tuple[float, Candidate]]


def measured(text: str, rounds: int) -> tuple[float, Speeds]:
    """GB/s of the fastest loop that reads, and of each sweep, the fastest first."""
    problem, target = parse_problem(text), resolve("host")
    assert isinstance(problem, Matmul)
    operands = make_operands(problem, 0)
    sweeps = offered(problem, Space(problem, target))
    if not any(streams_of(nest) > 1 for _, nest in sweeps):
        raise SystemExit(f"{text}: no sweep has streams apart; give a larger B, and m=1")
    ways: list[Any] = [lower(problem, schedule, target).bind(operands) for schedule, _ in sweeps]
    check(problem, operands, ways)
    reads = [reading(target, operands["B"], streams) for streams in STREAMS]
    taken = interleave([*ways, *reads], rounds)
    speeds = [operands["B"].nbytes / median(samples.times) / 1e9 for samples in taken]
    of_sweeps = list(zip(speeds[: len(sweeps)], sweeps, strict=True))
    return max(speeds[len(sweeps) :]), sorted(of_sweeps, key=lambda x: -x[0])


def row(text: str, read: float, speeds: Speeds) -> str:
    """The best sweep of either kind, as a share of the reads."""
    near = next(speed for speed, (_, nest) in speeds if streams_of(nest) == 1)
    apart, best = next(
        (speed, schedule) for speed, (schedule, nest) in speeds if streams_of(nest) > 1
    )
    return (
        f"{text:<38} {read:>6.1f} {near:>10.1f} {near / read:>6.0%} {apart:>6.1f} "
        f"{apart / read:>6.0%}  {' / '.join(map(str, best.steps))}"
    )


def listed(read: float, speeds: Speeds) -> Iterator[str]:
    """Each sweep and its share."""
    lanes = min(nest.tile.cols for _, (_, nest) in speeds)
    for speed, (_, nest) in speeds:
        streams = f"i{streams_of(nest)}" if streams_of(nest) > 1 else ""
        name = f"{nest.tile.cols // lanes}w{nest.depth}{streams}"
        name += " p" * len(nest.fetches)
        yield f"  {name:<12} {speed:>6.1f} {speed / read:>6.0%}"


def offered(problem: Matmul, space: Space) -> list[Candidate]:
    """All sweeps of all rows at once, with and without prefetch."""
    found: dict[Schedule, Nest] = {}
    for point in skinny_points(space):
        schedule = space.schedule(point)
        if loop_nest(problem, schedule).tile.rows == problem.m:
            bare = [step for step in schedule.steps if not isinstance(step, Prefetch)]
            at = next(place for place, step in enumerate(bare) if isinstance(step, Register))
            for fetches in ([], [Prefetch("B")]):
                sweep = Schedule((*bare[:at], *fetches, *bare[at:]))
                found[sweep] = loop_nest(problem, sweep)
    return list(found.items())


def streams_of(nest: Nest) -> int:
    """Parts of the reduction that a k-block has its rows from."""
    return nest.k_block.streams if nest.k_block else 1


if __name__ == "__main__":
    main()
