"""How long it takes to apply, lower and compile scripts of random schedules, and their memory.

    python -m benchmarks.kernels.script_times [--schedules 150] [--seed 0] [--out
    benchmarks/data/results]

Schedules are drawn from the same space as a search draws them, in turn for problems of every
kind and type. Each script is put to the whole proof in a process of its own. Prints the
distribution of processor seconds, to which others on the machine add nothing, with the seconds
of each stage on the clock in brackets; writes `script_times.txt` and `script_times.json`.
"""

import argparse
import json
import random
import resource
from collections import Counter
from pathlib import Path
from typing import Any

from tilewise.bench.machine import processor
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.proof.prove import prove_script
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import resolve
from tilewise.search.space.space import Space

PROBLEMS = (
    "matmul:m=256,n=256,k=256,dtype=f32",
    "matmul:m=200,n=199,k=201,dtype=f32,bias,epilogue=relu",
    "matmul:m=256,n=256,k=256,dtype=bf16",
    "matmul:m=192,n=250,k=256,dtype=i8",
    "matmul:m=128,n=256,k=256,dtype=f16,transpose_b",
    "matmul:m=256,n=192,k=256,dtype=f64,transpose_a",
    "matmul:batch=4,m=100,n=128,k=64,dtype=i32",
    "conv2d:n=1,h=28,w=28,ci=64,co=64,kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu",
    "conv2d:n=1,h=28,w=28,ci=64,co=96,kh=3,kw=3,stride=2,pad=1,dtype=f32",
    "conv2d:n=1,h=28,w=28,ci=64,co=64,kh=3,kw=3,pad=1,dtype=bf16",
    "conv2d:n=1,h=14,w=14,ci=128,co=128,kh=3,kw=3,stride=2,dtype=bf16",
    "conv2d:n=1,h=14,w=14,ci=128,co=160,kh=1,kw=1,dtype=bf16",
    "conv2d:n=1,h=28,w=28,ci=32,co=64,kh=3,kw=3,groups=2,dtype=bf16",
    "conv2d:n=1,h=28,w=28,ci=32,co=64,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f32",
    "conv2d:n=1,h=28,w=28,ci=32,co=64,kh=3,kw=3,layout=nchw_fchw,dtype=bf16",
)
BAR_S, BAR_SHARE, BAR_BYTES = 2.0, 0.95, 4 << 30
DRAWS = 200  # points of a space per schedule that is wanted, before it is given up
STAGES = ("apply_s", "lower_s", "compile_s")

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of script_times.txt and .json")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    rows = []
    for index in range(options.schedules):
        problem = parse_problem(PROBLEMS[index % len(PROBLEMS)])
        rows.append(prove_one(problem, draw(problem, generator), options.seed))
        print(line(rows[-1]), flush=True)
    told = summary(rows)
    print(told)
    if options.out:
        table = "\n".join([*map(line, slowest(rows)), "", told])
        (options.out / "script_times.txt").write_text(f"the ten slowest\n{table}\n")
        found = {"processor": processor(), "rows": rows}
        (options.out / "script_times.json").write_text(json.dumps(found, indent=1) + "\n")


def draw(problem: Problem, generator: random.Random) -> Schedule:
    """A random legal schedule of the space that a search for `problem` has, with a script."""
    space = Space(problem, resolve("host"), has_scripts=True)
    for _ in range(DRAWS):
        point = {p.name: generator.choice(p.values) for p in space.parameters}
        try:
            if not space.holds(point) or space.why_illegal(space.schedule(point)):
                continue
            schedule = space.schedule(point)
            emit_script(problem, schedule)
        except KernelsError:
            continue
        return schedule
    raise SystemExit(f"{problem}: {DRAWS} points, and no schedule with a script among them")


def prove_one(problem: Problem, schedule: Schedule, seed: int) -> Row:
    """Processor seconds, those of each stage on the clock, and the failure if there is one."""
    proof = prove_script(problem, emit_script(problem, schedule), seed=seed)
    return {
        "problem": problem.canonical,
        "schedule": schedule.to_json(),
        "seconds": proof.processor_s,
        **{name: getattr(proof, name) for name in STAGES},
        "failure": proof.failure,
        "message": proof.message,
    }


def line(row: Row) -> str:
    stages = " ".join(f"{row[name]:6.2f}" for name in STAGES)
    steps = Schedule.from_json(row["schedule"])
    told = "; ".join(str(step) for step in steps.steps)
    return f"{row['seconds']:6.2f} ({stages}) {row['failure'] or 'ok':<8} {row['problem']}: {told}"


def slowest(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -row["seconds"])[:10]


def summary(rows: list[Row]) -> str:
    """The distribution of the seconds, failures by class, and the largest process."""
    times = sorted(row["seconds"] for row in rows)
    marks = {
        share: times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.9, 0.95)
    }
    within = sum(time < BAR_S for time in times) / len(times)
    failures = Counter(row["failure"] for row in rows if row["failure"])
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    return "\n".join(
        [
            f"{len(rows)} schedules of {len(PROBLEMS)} problems: apply, lower and compile",
            "processor seconds: "
            + ", ".join(f"{share:.0%} {time:.2f}" for share, time in marks.items())
            + f", longest {times[-1]:.2f}",
            f"under {BAR_S:.0f} s: {within:.1%} (bar {BAR_SHARE:.0%})",
            f"largest process: {largest >> 20} MiB (bar {BAR_BYTES >> 20})",
            "failures: " + (", ".join(f"{n} {kind}" for kind, n in failures.items()) or "none"),
        ]
    )


if __name__ == "__main__":
    main()
