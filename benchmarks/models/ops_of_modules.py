"""Scripts of random contractions as modules have them: how many prove, and at what speed.

    python -m benchmarks.models.ops_of_modules [--count 40] [--seed 0] [--turns 3]

Each op has axes of A, B and C in a random order, up to two rows, columns, batches and reductions.
Its script has the schedule that the model chooses first. A row has the speed of that script beside
the script of the problem's own op with the same schedule, in turns of two processes: the median of
the ratios. `in place` says that no operand is packed whole.
"""

import argparse
import random
from dataclasses import dataclass
from statistics import median, quantiles

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.frontend.graph import LoneOp
from tilewise.kernels.mlir.frontend.read import read_op
from tilewise.kernels.mlir.op_scripts.normal_form import normal_form, schedulable
from tilewise.kernels.mlir.op_scripts.prove import prove_lone
from tilewise.kernels.mlir.proof.prove import prove
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import resolve
from tilewise.search.model.prior import direct_schedules

SIZES = {"b": (2, 3, 8), "m": (24, 64, 96, 130), "n": (32, 64, 96, 144), "k": (48, 64, 128)}
COUNTS = {"b": (0, 0, 1, 2), "m": (1, 1, 2), "n": (1, 1, 2), "k": (1, 1, 2)}
MOST_PRODUCTS = 1 << 26


@dataclass(frozen=True)
class Row:
    """What came of one op: `ratio` is None where no script proved, and `why` says it."""

    problem: str
    is_packed: bool
    ratio: float | None
    why: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="ops")
    parser.add_argument("--seed", type=int, default=0, help="of the first op")
    parser.add_argument("--turns", type=int, default=3, help="proofs of each script")
    options = parser.parse_args()
    rows = []
    for number in range(options.seed, options.seed + options.count):
        rows.append(row_of(drawn(random.Random(number)), options.turns))
        print(line(rows[-1]), flush=True)
    for name, some in (
        ("in place", [row for row in rows if not row.is_packed]),
        ("packed", [row for row in rows if row.is_packed]),
    ):
        print(summary(name, some))


def drawn(rng: random.Random) -> str:
    """A function with one contraction, its axes in any order."""
    while True:
        roles = [role for role, counts in COUNTS.items() for _ in range(rng.choice(counts))]
        extents = [rng.choice(SIZES[role]) for role in roles]
        total = 1
        for extent in extents:
            total *= extent
        if total <= MOST_PRODUCTS:
            break
    order = list(range(len(roles)))
    rng.shuffle(order)
    maps, shapes = [], []
    for of in ("bmk", "bkn", "bmn"):
        axes = [dim for dim in order if roles[dim] in of]
        rng.shuffle(axes)
        maps.append(", ".join(f"d{dim}" for dim in axes))
        shapes.append("".join(f"{extents[dim]}x" for dim in axes))
    loops = ", ".join(f"d{dim}" for dim in range(len(roles)))
    kinds = ", ".join('"reduction"' if role == "k" else '"parallel"' for role in roles)
    a, b, c = (f"tensor<{shape}f32>" for shape in shapes)
    accesses = ", ".join(f"affine_map<({loops}) -> ({one})>" for one in maps)
    return f"""
func.func @op(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
  %zero = arith.constant 0.0 : f32
  %start = linalg.fill ins(%zero : f32) outs(%c : {c}) -> {c}
  %r = linalg.generic {{indexing_maps = [{accesses}], iterator_types = [{kinds}]}}
      ins(%a, %b : {a}, {b}) outs(%start : {c}) {{
  ^bb0(%x: f32, %y: f32, %s: f32):
    %p = arith.mulf %x, %y : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  }} -> {c}
  return %r : {c}
}}
"""


def row_of(module: str, turns: int) -> Row:
    lone = read_op(module.encode())
    problem = schedulable(lone)
    (schedule,) = direct_schedules(problem, resolve("host"), 1)
    is_packed = bool(normal_form(lone, schedule).packing.sizes)
    try:
        ratios = [ratio_of(lone, problem, schedule) for _ in range(turns)]
    except KernelsError as error:
        return Row(problem.canonical, is_packed, None, str(error))
    return Row(problem.canonical, is_packed, median(ratios))


def ratio_of(lone: LoneOp, problem: Problem, schedule: Schedule) -> float:
    """Speed of the op's script over that of the problem's.

    Raises:
        KernelsError: one of them does not prove.
    """
    speeds = []
    for proof in (prove_lone(lone, schedule), prove(problem, schedule)):
        if not proof.ok or proof.gflops is None:
            raise KernelsError(f"{proof.failure}: {proof.message}")
        speeds.append(proof.gflops)
    return speeds[0] / speeds[1]


def line(row: Row) -> str:
    told = row.why if row.ratio is None else f"{row.ratio:5.2f}"
    return f"{'packed' if row.is_packed else 'in place':<8} {row.problem:<60} {told}"


def summary(name: str, rows: list[Row]) -> str:
    """How many prove, and the median ratio with its quartiles."""
    ratios = [row.ratio for row in rows if row.ratio is not None]
    told = f"{name}: {len(ratios)} of {len(rows)} prove"
    if len(ratios) > 1:
        low, middle, high = quantiles(ratios, n=4)
        told += f", {middle:.2f} of the problem's own script ({low:.2f} to {high:.2f})"
    return told


if __name__ == "__main__":
    main()
