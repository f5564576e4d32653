"""IREE's code with our tuning spec beside its default and its data tiling.

    python -m benchmarks.peers.tuning_specs [--trials 64] [--seconds 1] [--out FOLDER] [PROBLEM...]

Every problem is searched through IREE (target `iree:host`), or answered from the store. One file
has the entries of all. Each problem is then compiled three times, with the file, without it, and
with data tiling; what the file made is compared with the reference; and the three are called in
turns. Printed are medians and the gain over the faster of IREE's modes. Writes
`tuning_specs.txt` and `tuning_specs.json`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from tilewise.bench.machine import processor
from tilewise.kernels.mlir.iree.compiler import DATA_TILING, compile_module
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.proof.child.timing import time_in_turn
from tilewise.kernels.mlir.tuning_spec.compiled import FLAG, check_matched
from tilewise.kernels.oracle.operands import make_operands, poison
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.search.peers.iree import bound

PROBLEMS = (
    "matmul:m=512,n=512,k=512,dtype=f32",
    "matmul:m=1024,n=1024,k=1024,dtype=f32",
    "matmul:m=2048,n=2048,k=2048,dtype=f32",
    "matmul:m=128,n=3072,k=768,dtype=f32",
    "matmul:m=128,n=768,k=3072,dtype=f32",
    "matmul:m=4,n=1024,k=1024,dtype=f32",
    "conv2d:n=1,h=56,w=56,ci=64,co=256,kh=1,kw=1,dtype=f32",
    "conv2d:n=1,h=28,w=28,ci=512,co=128,kh=1,kw=1,dtype=f32",
    "conv2d:n=1,h=14,w=14,ci=1024,co=256,kh=1,kw=1,dtype=f32",
    "conv2d:n=1,h=7,w=7,ci=2048,co=512,kh=1,kw=1,dtype=f32",
)
"""Square matmuls, BERT-base's two large ones, few rows, and ResNet-50's filters of one by one."""

BAR = 1.15

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", default=PROBLEMS, metavar="PROBLEM")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each module's turns")
    parser.add_argument("--out", type=Path, help="folder of tuning_specs.txt and .json")
    options = parser.parse_args()
    problems = [parse_problem(text) for text in options.problems]
    for problem in problems:
        tilewise(
            *("tune", problem.canonical, "--target", "iree:host"),
            *("--trials", str(options.trials), "--json"),
        )
    names = [problem.canonical for problem in problems]
    made = json.loads(tilewise("script", "--flavor", "iree-spec", *names, "--json"))
    kept = [problem for problem in problems if problem.canonical in made["problems"]]
    check_matched(made["script"], kept)
    rows = [measured(problem, made["script"], options.seconds) for problem in kept]
    lines = [*map(line, rows), *map(left_out, made["left_out"]), summary(rows)]
    print("\n".join(lines))
    if options.out:
        (options.out / "tuning_specs.txt").write_text("\n".join(lines) + "\n")
        found = {"processor": processor(), "rows": rows, "left_out": made["left_out"]}
        (options.out / "tuning_specs.json").write_text(json.dumps(found, indent=1) + "\n")


def tilewise(*arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "tilewise", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def measured(problem: Problem, spec: str, seconds: float) -> Row:
    """Speeds of the three modules on the same operands, in turns."""
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(spec)
        file.flush()
        ways = {"spec": (f"{FLAG}{file.name}",), "default": (), "data tiling": (DATA_TILING,)}
        codes = {name: compile_module(module_text(problem), ways[name]) for name in ways}
    operands = make_operands(problem)
    runs = {n: bound(code, problem, operands, 1, n).run for n, code in codes.items()}
    poison(operands["C"])
    runs["spec"](1)
    error, tolerance = compare(problem, operands["C"], reference(problem, operands))
    assert error <= tolerance, f"{problem}: off by {error}, {tolerance} is allowed"
    times = time_in_turn(list(runs.values()), seconds)
    speeds = {name: problem.flops / time / 1e9 for name, time in zip(runs, times, strict=True)}
    gain = speeds["spec"] / max(speeds["default"], speeds["data tiling"])
    return {"problem": problem.canonical, **speeds, "gain": gain, "error": error / tolerance}


def line(row: Row) -> str:
    """A row of the table."""
    return (
        f"{row['gain']:5.2f}x  spec {row['spec']:6.1f}  default {row['default']:6.1f}  "
        f"data tiling {row['data tiling']:6.1f} GFLOP/s  {row['problem']}"
    )


def left_out(one: Row) -> str:
    """A problem that has no entry."""
    return f"left out: {one['problem']}: {one['reason']}"


def summary(rows: list[Row]) -> str:
    """What all come to."""
    gains = [row["gain"] for row in rows]
    return (
        f"geometric mean {geometric_mean(gains):.2f}x the better of IREE's modes (bar {BAR}), "
        f"least {min(gains):.2f}x, {len(gains)} problems, each seen to match"
    )


if __name__ == "__main__":
    main()
