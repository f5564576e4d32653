"""Products of matrices by Strassen's method: beside the direct one and oneDNN, and how accurate.

    python -m benchmarks.reductions.strassen [PROBLEM ...] [--trials 24] [--db URL] [--out FILE]

Each problem is searched for twice, with accuracy=standard and strict, and the winners and every way
of oneDNN are timed in the same interleaved rounds of one process. `limit` is what its products take
at the peak of multiply-adds, and its sums of quadrants at the speed at which this core copies lines
within its second cache; both are measured in the run. Speeds count the multiply-adds of the direct
method, so they can exceed the peak.

The second table has rms errors against float64, those of the direct method relative to the result
and the others in multiples of it.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.kernels.winograd import HEADER, compared, line, means
from tilewise.bench.machine import processor
from tilewise.kernels.fast_algorithms import LEVELS
from tilewise.kernels.oracle.accuracy import KINDS
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Strassen
from tilewise.kernels.target import Target, resolve
from tilewise.search.runner.child.accuracy import direct_errors, errors_of

SIZES = (
    "matmul:m=128,n=768,k=768",
    "matmul:m=128,n=3072,k=768",
    "matmul:m=128,n=768,k=3072",
    "conv2d:n=1,h=14,w=14,ci=1024,co=512,kh=1,kw=1",
    "matmul:m=384,n=1024,k=4096",
    "matmul:m=512,n=4096,k=4096",
)
SQUARES = ("matmul:m=1024,n=1024,k=1024", "matmul:m=2048,n=2048,k=2048")
PROBLEMS = (
    *(f"{size},dtype=f32,weights=constant" for size in SIZES),
    *(f"{size},dtype=f32" for size in SQUARES),
)
DEPTHS = (64, 256, 512, 1024, 4096)

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*")
    parser.add_argument("--target", default="cpu:host")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--db", help="default: an empty one")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    target = resolve(options.target)
    print(f"{processor()}, {target.canonical}\n\n{HEADER} {'of peak':>7}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        url = options.db or f"sqlite:///{folder}/results.db"
        for text in options.problems or PROBLEMS:
            row = compared(text, target, options.trials, url)
            rows.append(row)
            print(f"{line(row)} {row['ours'] / row['peak']:>7.0%}", flush=True)
            print(f"    {row['schedule']}", flush=True)
    for said in means(rows):
        print(said)
    errors = [accuracy(depth, target) for depth in DEPTHS]
    print()
    for said in error_table(errors):
        print(said)
    if options.out:
        found = {"processor": processor(), "target": target.canonical}
        options.out.write_text(
            json.dumps(found | {"rows": rows, "errors": errors}, indent=1) + "\n"
        )


def accuracy(depth: int, target: Target) -> Row:
    """The direct method's rms errors relative to the result's, and in them those of each level."""
    problem = parse_problem(f"matmul:m=64,n=128,k={depth},dtype=f32")
    cols = 2 * target.lanes("f32")
    found: Row = {"depth": depth, "direct": direct_errors(problem, target)}
    for levels in LEVELS:
        steps = Schedule((Strassen(levels), Pack("B"), Pack("A"), Register(6, cols)))
        found[f"levels={levels}"] = errors_of(problem, steps, target)
    return found


def error_table(rows: list[Row]) -> list[str]:
    """The errors of every method on every kind of operands, by the depth of the sums."""
    said = [f"{'depth':>8} {'method':<10}" + "".join(f"{kind:>10}" for kind in KINDS)]
    for row in rows:
        direct = "".join(f"{row['direct'][kind]:>10.1e}" for kind in KINDS)
        said.append(f"{row['depth']:>8} {'direct':<10}{direct}")
        for name in (f"levels={levels}" for levels in LEVELS):
            times = "".join(f"{row[name][kind]:>10.2f}" for kind in KINDS)
            said.append(f"{'':>8} {name:<10}{times}")
    return said


if __name__ == "__main__":
    main()
