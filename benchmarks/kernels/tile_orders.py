"""Does the order in which the outer tiles of a large product are visited matter?

    python -m benchmarks.kernels.tile_orders [PROBLEM ...] [--tile 512] [--threads 1] [--rounds 9]

The result is cut into square tiles, each with its whole reduction. The factors lie tile by tile, so
that one kernel (searched for on a tile) computes each of them, and orders differ in nothing else:
row by row, to and fro, along Morton's curve, along Hilbert's. Several threads take a piece of the
order each. `GB` is what a last cache of this machine's size, with the least recently used lines
evicted, reads from memory in that order; `s` the time that this takes at the bandwidth measured.
The best schedule of the whole product, on factors as they are given, runs in the same rounds.
"""

import argparse
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from statistics import median

from benchmarks.kernels.threads import best_steps
from tilewise.bench.machine import processor
from tilewise.kernels.native import lower
from tilewise.kernels.native.executable import KernelCall
from tilewise.kernels.native.microbench import bandwidth_gbs
from tilewise.kernels.native.threads.pinning import pin, usable_processors
from tilewise.kernels.oracle.operands import Operands, make_operands, poison
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Matmul, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target, resolve

PROBLEMS = tuple(
    f"matmul:{sizes},dtype={dtype}"
    for sizes in ("m=4096,n=4096,k=4096", "m=2048,n=8192,k=8192", "m=512,n=28672,k=8192")
    for dtype in ("f32", "bf16")
)
PIECES = 64  # that a block of a factor is read in, by the model of the last cache

Tile = tuple[int, int]
Order = list[Tile]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--tile", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--db", help="default: an empty one")
    options = parser.parse_args()
    target = resolve(f"cpu:host,threads={options.threads}")
    bandwidth = bandwidth_gbs(target)
    print(f"{processor()}, {target.canonical}; memory {bandwidth:.0f} GB/s\n{HEADER}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        url = options.db or f"sqlite:///{folder}/results.db"
        for text in options.problems:
            problem = parse_problem(text)
            assert isinstance(problem, Matmul)
            compare_orders(problem, target, url, bandwidth, options)


def compare_orders(
    problem: Matmul, target: Target, url: str, bandwidth: float, options: argparse.Namespace
) -> None:
    """Time the orders of one problem and its whole schedule in turn; print a row for each."""
    grid = Grid.of(problem, options.tile)
    orders = grid.orders()
    tiles = tile_calls(grid, target, url, options.trials)
    runs = {name: visits(tiles, order, target.threads) for name, order in orders.items()}
    runs["whole"] = whole_call(problem, target, url, options.trials)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for index in range(options.rounds):
        for name in list(runs)[:: 1 if index % 2 else -1]:
            begin = time.perf_counter()
            runs[name]()
            times[name].append(time.perf_counter() - begin)
    for name, taken in times.items():
        ratios = [rows / own for rows, own in zip(times["rows"], taken, strict=True)]
        read = grid.read_gb(orders[name], target) if name in orders else 0.0
        print(
            f"{problem.canonical:<42} {name:<8} {read:>7.2f} {read / bandwidth:>7.3f} "
            f"{median(taken):>7.3f} {median(ratios):>7.3f} {min(ratios):>7.3f} {max(ratios):>7.3f}",
            flush=True,
        )


HEADER = (
    f"{'problem':<42} {'order':<8} {'GB':>7} {'s':>7} {'run, s':>7} {'/rows':>7} {'least':>7} "
    f"{'most':>7}"
)


@dataclass(frozen=True)
class Grid:
    """A product's result cut into tiles; `tile` is the problem of one of them."""

    rows: int
    cols: int
    tile: Matmul

    @classmethod
    def of(cls, problem: Matmul, size: int) -> "Grid":
        """Tiles of `size`, which divides the result."""
        if problem.m % size or problem.n % size:
            raise SystemExit(f"{problem}: give a --tile that divides m and n, not {size}")
        tile = replace(problem, m=size, n=size)
        return cls(problem.m // size, problem.n // size, tile)

    def orders(self) -> dict[str, Order]:
        """The tiles in each order."""
        rows = list(product(range(self.rows), range(self.cols)))
        return {
            "rows": rows,
            "to, fro": sorted(rows, key=lambda at: (at[0], -at[1] if at[0] % 2 else at[1])),
            "morton": sorted(rows, key=morton),
            "hilbert": sorted(rows, key=lambda at: hilbert(at, max(self.rows, self.cols))),
        }

    def read_gb(self, order: Order, target: Target) -> float:
        """What the factors' blocks cost in reads from memory, in that order."""
        size = self.tile.element.bytes
        block = self.tile.m * self.tile.k * size
        room = max(1, target.l3_bytes * PIECES // block)
        kept: OrderedDict[tuple[str, int, int], None] = OrderedDict()
        missed = 0
        for piece in turns(order, target.threads):
            if piece in kept:
                kept.move_to_end(piece)
                continue
            missed += 1
            kept[piece] = None
            if len(kept) > room:
                kept.popitem(last=False)
        return missed * block / PIECES / 1e9


def turns(order: Order, threads: int) -> Iterator[tuple[str, int, int]]:
    """The pieces of both factors as the threads read them, side by side."""
    shares = divided(order, threads)
    for index in range(len(shares[0])):
        for piece in range(PIECES):
            for share in shares:
                if index < len(share):
                    row, col = share[index]
                    yield "A", row, piece
                    yield "B", col, piece


def morton(at: Tile) -> int:
    """The place on Morton's curve: the bits of both indices in turn."""
    row, col = at
    return sum(((row >> b & 1) << 2 * b + 1) | ((col >> b & 1) << 2 * b) for b in range(16))


def hilbert(at: Tile, extent: int) -> int:
    """The place on Hilbert's curve through a square of a power of two."""
    (y, x), place = at, 0
    side = 1 << (extent - 1).bit_length()
    half = side // 2
    while half:
        right, down = int(x & half > 0), int(y & half > 0)
        place += half * half * ((3 * right) ^ down)
        if not down:
            if right:
                x, y = side - 1 - x, side - 1 - y
            x, y = y, x
        half //= 2
    return place


def divided(order: Order, threads: int) -> list[Order]:
    """A piece of the order for each thread."""
    share = -(-len(order) // threads)
    return [order[at : at + share] for at in range(0, len(order), share)]


def tile_calls(grid: Grid, target: Target, url: str, trials: int) -> list[dict[Tile, KernelCall]]:
    """For each thread the calls that compute the tiles, on scratch of its own; some are checked."""
    one = target.with_threads(1)
    steps = best_steps(grid.tile.canonical, one.canonical, trials, url)
    executable = lower(grid.tile, Schedule.from_json(steps), one)
    a = [make_operands(grid.tile, row)["A"] for row in range(grid.rows)]
    b = [make_operands(grid.tile, 100 + col)["B"] for col in range(grid.cols)]
    tiles = list(product(range(grid.rows), range(grid.cols)))
    c = {at: make_operands(grid.tile, 0)["C"] for at in tiles}
    given = {at: {"A": a[at[0]], "B": b[at[1]], "C": c[at]} for at in tiles}
    found = []
    for _ in range(target.threads):
        first = executable.bind(given[0, 0])
        scratch = first.kept[1]
        found.append({at: executable.bind(given[at], scratch) for at in tiles})
    check(grid.tile, found[0][tiles[-1]], given[tiles[-1]])
    return found


def visits(calls: list[dict[Tile, KernelCall]], order: Order, threads: int) -> Callable[[], None]:
    """What computes all tiles in that order."""
    shares = divided(order, threads)
    if threads == 1:
        return lambda: compute(calls[0], shares[0], None)
    pool, places = ThreadPoolExecutor(threads), usable_processors()

    def run() -> None:
        waiting = [
            pool.submit(compute, own, share, place)
            for own, share, place in zip(calls, shares, places, strict=False)
        ]
        for one in waiting:
            one.result()

    return run


def compute(calls: dict[Tile, KernelCall], order: Order, place: int | None) -> None:
    """The tiles of one thread."""
    if place is not None:
        pin({place})
    for at in order:
        calls[at]()


def whole_call(problem: Matmul, target: Target, url: str, trials: int) -> KernelCall:
    """The best schedule of the whole product, which its search has checked."""
    steps = best_steps(problem.canonical, target.canonical, trials, url)
    return lower(problem, Schedule.from_json(steps), target).bind(make_operands(problem, 0))


def check(problem: Matmul, call: KernelCall, operands: Operands) -> None:
    """Compare one run with the reference."""
    poison(operands["C"])
    call()
    error, tolerance = compare(problem, operands["C"], reference(problem, operands))
    if not error <= tolerance:
        raise SystemExit(f"{problem}: the deviation is {error:.3g}, allowed is {tolerance:.3g}")


if __name__ == "__main__":
    main()
