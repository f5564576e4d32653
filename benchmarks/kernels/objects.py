"""Objects and bitcode beside our own call of the same schedule, over problems of the suites.

    python -m benchmarks.kernels.objects [--problems 20] [--seconds 0.5] [--out
    benchmarks/data/results]

The schedule of each problem is the one that the analytical model puts first. The object is linked
into this process; the bitcode first gets all passes of LLVM's level 3, as a compiler that takes it
in gives it. The three are called in turns on the same operands, and the ratios are medians over
turns. Writes `objects.txt` and `objects.json`.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean, median

import llvmlite.binding as llvm

from tilewise.bench import read_suite
from tilewise.bench.machine import processor
from tilewise.kernels.native import lower
from tilewise.kernels.native.jit.object_code import optimise
from tilewise.kernels.native.objects.make import make_object
from tilewise.kernels.native.objects.module import machine
from tilewise.kernels.native.objects.proof.calls import LoadedObject, bound, in_turns
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target, resolve
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space

SUITES = Path("benchmarks/data/suites")
MEAN_BAR, LEAST_BAR = 0.97, 0.93

Row = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5, help="of turns for each problem")
    parser.add_argument("--out", type=Path, help="folder of objects.txt and objects.json")
    options = parser.parse_args()
    target, rows, lines = resolve("host"), [], []
    for problem in chosen(options.problems):
        rows.append(measured(problem, target, options.seconds))
        lines.append(line(rows[-1]))
        print(lines[-1], flush=True)
    told = summary(rows)
    print(told)
    if options.out:
        (options.out / "objects.txt").write_text("\n".join([*lines, told]) + "\n")
        found = {"processor": processor(), "rows": rows}
        (options.out / "objects.json").write_text(json.dumps(found, indent=1) + "\n")


def chosen(most: int) -> list[Problem]:
    """Problems of all suites in turn: the first of each, then the second of each."""
    suites = [
        [entry.problem for entry in read_suite(path).entries] for path in sorted(SUITES.glob("*"))
    ]
    return list(dict.fromkeys(_in_turn(suites)))[:most]


def _in_turn(suites: list[list[Problem]]) -> Iterator[Problem]:
    for number in range(max(map(len, suites))):
        yield from (suite[number] for suite in suites if number < len(suite))


def first_choice(problem: Problem, target: Target) -> Schedule:
    """What the analytical model would try first."""
    space = Space(problem, target)
    return space.schedule(prior_points(AnalyticalModel.shipped(space), 1)[0])


def measured(problem: Problem, target: Target, seconds: float) -> Row:
    """The speed of the object and of the compiled bitcode over that of our own call."""
    schedule = first_choice(problem, target)
    made = make_object(problem, schedule, target)
    again = compiled_again(made.bitcode, made.features)
    operands = make_operands(problem)
    ours = lower(problem, schedule, target).bind(operands)
    loaded = [LoadedObject(made.interface, data) for data in (made.object, again)]
    runs = [ours, *(bound(one, operands) for one in loaded)]
    samples = in_turns(runs, seconds)
    ratios = [[turn[0] / turn[i] for turn in samples] for i in (1, 2)]
    return {
        "problem": problem.canonical,
        "schedule": schedule.hash,
        "bytes": len(made.object),
        "gflops": problem.flops / median(turn[1] for turn in samples) / 1e9,
        "object": median(ratios[0]),
        "bitcode": median(ratios[1]),
        "turns": len(samples),
    }


def compiled_again(bitcode: bytes, features: tuple[str, ...]) -> bytes:
    """Return the object that a compiler makes of bitcode with all passes of level 3."""
    made = machine(features)
    module = llvm.parse_bitcode(bitcode)
    optimise(module, made, "level 3")
    return bytes(made.emit_object(module))


def line(row: Row) -> str:
    return (
        f"{row['gflops']:8.1f} GFLOP/s  object {row['object']:.3f}  bitcode {row['bitcode']:.3f}"
        f"  {row['bytes']:6} bytes  {row['turns']:4} turns  {row['problem']}"
    )


def summary(rows: list[Row]) -> str:
    told = []
    for kind in ("object", "bitcode"):
        found = [float(str(row[kind])) for row in rows]
        told.append(
            f"{kind}: geometric mean {geometric_mean(found):.3f} (bar {MEAN_BAR}), "
            f"least {min(found):.3f} (bar {LEAST_BAR}), {len(found)} problems"
        )
    return "\n".join(told)


if __name__ == "__main__":
    main()
