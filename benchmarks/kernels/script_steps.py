"""Scripts beside native kernels, for each kind of step that a script lowers in its own way.

    python -m benchmarks.kernels.script_steps [KIND ...] [--schedules 4] [--rounds 15] [--out
    benchmarks/data/results]

For each problem the first schedules of the prior, each natively and as a script, timed in the same
interleaved rounds of one process. A row has the fastest of either, which need not be of one
schedule, and the best ratio of one schedule. Writes `script_steps.txt` and `script_steps.json`.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.kernels.children import Row, measured_apart
from benchmarks.kernels.scripts import LIMIT_S, measure
from tilewise.bench.machine import processor
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import resolve
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space

LARGE = "conv2d:n=1,h=56,w=56,ci=144,co=144,kh=3,kw=3,groups=144"
SMALL = "conv2d:n=1,h=14,w=14,ci=384,co=384,kh=3,kw=3,groups=384"
NARROW = "conv2d:n=1,h=28,w=28,ci=128,co=128,kh=3,kw=3,pad=1,groups=32"
PLANES = "layout=nchw_fchw"
SKINNY = "n=4096,k=4096"
FILTERED = (
    "conv2d:n=1,h=28,w=28,ci=128,co=128,kh=3,kw=3,pad=1,dtype=f32",
    "conv2d:n=1,h=14,w=14,ci=256,co=256,kh=3,kw=3,pad=1,dtype=f32",
)
KINDS: dict[str, tuple[str, ...]] = {
    "windows": (f"{LARGE},dtype=f32", f"{SMALL},dtype=f32"),
    "padded": (f"{LARGE},pad=1,dtype=f32", f"{SMALL},pad=1,dtype=f32"),
    "strided": (f"{LARGE},stride=2,pad=1,dtype=f32", f"{SMALL},stride=2,pad=1,dtype=f32"),
    "bf16": (f"{LARGE},pad=1,dtype=bf16", f"{SMALL},pad=1,dtype=bf16"),
    "planes": tuple(
        f"{layer},{PLANES},dtype=f32"
        for layer in (LARGE, f"{LARGE},pad=1", f"{SMALL},pad=1", f"{LARGE},stride=2,pad=1")
    ),
    "groups": (f"{NARROW},dtype=f32", f"{NARROW},{PLANES},dtype=f32"),
    "sweep": tuple(
        f"matmul:m={rows},{SKINNY},dtype={dtype}" for dtype in ("f32", "bf16") for rows in (1, 4, 8)
    ),
    "filtered": FILTERED,
    "few_rows": tuple(f"matmul:m=16,{SKINNY},dtype={dtype}" for dtype in ("f32", "bf16", "i8")),
    "split": (
        "matmul:m=4096,n=1,k=512,dtype=f32",
        "matmul:m=4,n=1024,k=4096,dtype=f32,transpose_b",
    ),
}
"""Problems by what their scripts show."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--schedules", type=int, default=4, help="of each problem")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="folder of script_steps.txt and .json")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        json.dump(measure(json.load(sys.stdin)), sys.stdout)
        return
    if unknown := sorted({*options.kinds} - {*KINDS}):
        parser.error(f"no kind {unknown[0]}; there are {', '.join(KINDS)}")
    rows = []
    print(HEADER)
    for kind in options.kinds or KINDS:
        for problem in KINDS[kind]:
            rows.append(row_of(kind, parse_problem(problem).canonical, options))
            print(line(rows[-1]), flush=True)
    if options.out:
        table = "\n".join([HEADER, *map(line, rows)])
        (options.out / "script_steps.txt").write_text(f"{table}\n\n{processor()}\n")
        found = {"processor": processor(), "rows": rows}
        (options.out / "script_steps.json").write_text(json.dumps(found, indent=1) + "\n")


def row_of(kind: str, problem: str, options: argparse.Namespace) -> Row:
    """The schedules of a problem, each in a process of its own."""
    runs = [
        run_of(problem, schedule, options.rounds)
        for schedule in first_schedules(problem, options.schedules)
    ]
    measured = [run for run in runs if "failure" not in run]
    failures = [run["failure"] for run in runs if "failure" in run]
    return {"kind": kind, "problem": problem, "runs": measured, "failures": failures}


def first_schedules(problem: str, most: int) -> list[Schedule]:
    """What the prior tries first."""
    space = Space(parse_problem(problem), resolve("host"))
    return [space.schedule(point) for point in prior_points(AnalyticalModel.shipped(space), most)]


def run_of(problem: str, schedule: Schedule, rounds: int) -> Row:
    """One schedule both ways, or why there is nothing to tell."""
    request = {"problem": problem, "steps": schedule.to_json(), "rounds": rounds}
    answer = measured_apart("benchmarks.kernels.script_steps", request, LIMIT_S)
    if "failure" in answer:
        return {"failure": f"{schedule.hash}: {answer['failure']}"}
    return {"schedule": schedule.hash, **answer}


HEADER = (
    f"{'kind':<8} {'problem':<92} {'native':>7} {'script':>7} {'of best':>7} {'of same':>7} "
    f"{'seconds':>7}"
)


def line(row: Row) -> str:
    head = f"{row['kind']:<8} {row['problem']:<92}"
    runs = row["runs"]
    if not runs:
        return f"{head} {row['failures'][0]}"
    native, script = (max(run[way] for run in runs) for way in ("native", "script"))
    same, seconds = (max(run[name] for run in runs) for name in ("ratio", "seconds"))
    failed = f" ({len(row['failures'])} failed)" if row["failures"] else ""
    return (
        f"{head} {native:>7.1f} {script:>7.1f} {script / native:>7.2f} {same:>7.2f} "
        f"{seconds:>7.2f}{failed}"
    )


if __name__ == "__main__":
    main()
