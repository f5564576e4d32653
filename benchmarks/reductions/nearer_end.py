"""What it gains to begin at the end of a matrix that a cache still has, and what it costs besides.

    python -m benchmarks.reductions.nearer_end [PROBLEM ...] [--rounds 15] [--all]

Every schedule with the step `alternate` that a search may begin with, and the same without it, in
the same rounds on one core: GB/s of the matrix, medians, the best of either kind. `read` is the
fastest of loops that load every vector of it once, from its first byte on; `peer` the fastest of
OpenBLAS and oneDNN (through PyTorch). `between` has the same two schedules where every other call
is of another matrix of this size: the time of both in order over the time of both from the nearer
end. With `--all` a line of each schedule follows.
"""

import argparse
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.kernels.streaming import STREAMS, fastest_peers, reading
from benchmarks.reductions.read_in_place import check
from tilewise.bench.machine import processor
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Matmul, parse_problem
from tilewise.kernels.schedule import Alternate, Schedule
from tilewise.kernels.target import Target, resolve
from tilewise.search.model.analytical import Model
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space
from tilewise.search.timing.interleave import interleave

PROBLEMS = [
    f"matmul:{text}"
    for text in (
        *(f"m=1,n={n},k=1000,dtype=f32" for n in (500, 750, 1000, 2000, 4000)),
        *(f"m={m},n=1,k=1000,dtype=f32" for m in (500, 750, 1000, 2000, 4000)),
        *("m=1,n=512,k=4096,dtype=f32", "m=4096,n=1,k=512,dtype=f32"),
        *("m=1,n=1000,k=1000,dtype=f32,transpose_b", "m=4,n=1000,k=1000,dtype=f32"),
        *("m=1,n=1000,k=2000,dtype=bf16", "m=2000,n=1,k=2000,dtype=i8"),
    )
]
FIRST = 24  # points of the prior that are looked at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--all", action="store_true", help="a line of each schedule")
    options = parser.parse_args()
    target = resolve("host")
    print(f"{processor()}, second cache {target.l2_bytes >> 10} KiB\n\n{HEADER}", flush=True)
    for text in options.problems:
        for line in Measured(text, target, options.rounds).lines(options.all):
            print(line, flush=True)


HEADER = (
    f"{'problem':<44} {'MB':>5} {'read':>6} {'peer':>6} {'in order':>8} {'nearer end':>10} "
    f"{'gain':>5} {'/peer':>5} {'between':>7}  steps"
)


class Measured:
    """One problem: its schedules from the nearer end and in order, and who they stand beside."""

    def __init__(self, text: str, target: Target, rounds: int) -> None:
        problem = parse_problem(text)
        assert isinstance(problem, Matmul)
        self.problem, self.target, self.rounds = problem, target, rounds
        self.operands = make_operands(problem, 0)
        self.matrix = max((self.operands[name] for name in "AB"), key=lambda array: array.nbytes)
        self.pairs = [(in_order(schedule), schedule) for schedule in offered(problem, target)]
        if not self.pairs:
            raise SystemExit(f"{text}: no schedule begins at either end; give a matrix of 1 to 8 "
                             f"times the second cache of {target.l2_bytes} bytes")  # fmt: skip

    def lines(self, all_of_them: bool) -> list[str]:
        """The row of the table, and one for each pair where asked for."""
        ways = [self._bound(schedule, 0) for pair in self.pairs for schedule in pair]
        reads = [reading(self.target, self.matrix, streams) for streams in STREAMS]
        peers = fastest_peers(self.problem, self.operands, reference(self.problem, self.operands))
        speeds = self._speeds([*ways, *reads, *peers])
        ours, others = speeds[: len(ways)], speeds[len(ways) :]
        plain, turned = max(ours[::2]), max(ours[1::2])
        peer = max(others[len(reads) :], default=float("nan"))
        schedule = self.pairs[ours[1::2].index(turned)][1]
        between = self._between(self.pairs[ours[::2].index(plain)][0], schedule)
        row = (
            f"{self.problem.canonical:<44} {self.matrix.nbytes / 1e6:>5.1f} "
            f"{max(others[: len(reads)]):>6.1f} {peer:>6.1f} {plain:>8.1f} {turned:>10.1f} "
            f"{turned / plain:>5.2f} {turned / peer:>5.2f} {between:>7.2f}  {told(schedule)}"
        )
        each = [
            f"    {one:>6.1f} {other:>6.1f}  {told(pair[1])}"
            for one, other, pair in zip(ours[::2], ours[1::2], self.pairs, strict=True)
        ]
        return [row, *(each if all_of_them else [])]

    def _between(self, plain: Schedule, turned: Schedule) -> float:
        """What the nearer end gains where another matrix is read between."""
        ways = [both(self._bound(way, 0), self._bound(way, 1)) for way in (plain, turned)]
        in_order, from_end = self._speeds(ways)
        return from_end / in_order

    def _bound(self, schedule: Schedule, seed: int) -> Any:
        """A checked call on operands of its own for each seed."""
        operands = self.operands if seed == 0 else make_operands(self.problem, seed)
        call = lower(self.problem, schedule, self.target).bind(operands)
        check(self.problem, operands, [call])
        return call

    def _speeds(self, ways: list[Any]) -> list[float]:
        taken = interleave(ways, self.rounds, self.target.threads)
        return [self.matrix.nbytes / median(samples.times) / 1e9 for samples in taken]


def both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[int], None]:
    """A run, so many times, of one and then the other."""

    def run(times: int = 1) -> None:
        for _ in range(times):
            one()
            other()

    return run


def offered(problem: Matmul, target: Target) -> list[Schedule]:
    """The schedules with the step that a search may begin with."""
    space = Space(problem, target)
    made = [space.schedule(point) for point in prior_points(Model.shipped(space), FIRST)]
    return [schedule for schedule in dict.fromkeys(made) if schedule.alternates]


def in_order(schedule: Schedule) -> Schedule:
    """The same steps without the one that begins at either end."""
    return Schedule(tuple(s for s in schedule.steps if not isinstance(s, Alternate)))


def told(schedule: Schedule) -> str:
    """The steps in a line."""
    return "; ".join(map(str, schedule.steps))


if __name__ == "__main__":
    main()
