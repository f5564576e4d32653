"""Transform scripts, compiled as their proofs compile them, against native kernels.

    python -m benchmarks.kernels.scripts [NAME ...] [--trials 64] [--db URL] [--out
    benchmarks/data/results]

For every f32 problem of the suites: the stored schedule (searched for if need be), its native
kernel and its script, timed in the same interleaved rounds of one process. Where a schedule
has no script, that of the script which `tilewise script` serves is taken. Writes
`scripts.txt` and `scripts.json`.
"""

import argparse
import json
import sys
import time
from math import exp, log
from pathlib import Path
from typing import Any

from iree.compiler import ir

from benchmarks.kernels.children import Row, measured_apart
from benchmarks.places import SUITES
from tilewise.backends.base import TrialSeen
from tilewise.backends.choose import Backend, local_backend
from tilewise.bench import read_suite
from tilewise.bench.machine import processor
from tilewise.errors import MissingError
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_script
from tilewise.kernels.mlir.lowering.jit import RepeatedCall, compile_ir
from tilewise.kernels.mlir.lowering.to_llvm import lower as lower_module
from tilewise.kernels.mlir.payload.function import ENTRY, argument_names
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.native import lower
from tilewise.kernels.native.microbench import peak_gflops
from tilewise.kernels.oracle.operands import (
    NUMPY_TYPES,
    Operands,
    empty_aligned,
    make_operands,
    poison,
)
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import resolve
from tilewise.search.records import TuneRequest
from tilewise.search.timing.measure import interleave
from tilewise.search.timing.samples import summarise

NAMES = ("square", "bert_base", "resnet50", "background")
ROUNDS = 25
LIMIT_S = 300.0
LEAST_GEOMEAN, LEAST_RATIO, LEAST_PEAK = 0.92, 0.75, 0.88
LARGE = (
    "matmul:m=1024,n=1024,k=1024,dtype=f32",
    "conv2d:n=5,h=82,w=102,ci=128,co=128,kh=3,kw=3,dtype=f32,bias,epilogue=relu",
)
"""What also has to reach a share of peak."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="suites or problems; default: four suites")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--db", help="default: TILEWISE_DB")
    parser.add_argument("--out", type=Path, help="folder of scripts.txt and scripts.json")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        json.dump(measure(json.load(sys.stdin)), sys.stdout)
        return
    rows = []
    print(HEADER)
    with local_backend(options.db) as backend:
        for problem in problems(options.names or NAMES):
            rows.append(row_of(problem, backend, options))
            print(line(rows[-1]), flush=True)
    told = summary(rows)
    print(told)
    if options.out:
        table = "\n".join([HEADER, *map(line, rows), told])
        (options.out / "scripts.txt").write_text(table + "\n")
        found = {"processor": processor(), "summary": sums(rows), "rows": rows}
        (options.out / "scripts.json").write_text(json.dumps(found, indent=1) + "\n")


def problems(names: list[str] | tuple[str, ...]) -> list[Problem]:
    """The f32 problems of suites, and those named themselves."""
    found: list[Problem] = []
    for name in names:
        if ":" in name:
            found.append(parse_problem(name))
            continue
        entries = read_suite(SUITES / f"{name}.json").entries
        found += [entry.problem for entry in entries if entry.problem.dtype == "f32"]
    return found


def row_of(problem: Problem, backend: Backend, options: argparse.Namespace) -> Row:
    """Measure one problem in a process of its own; a failure is a row that says so."""
    steps = scripted_steps(problem, stored(problem, backend, options.trials), backend)
    request = {"problem": problem.canonical, "steps": steps, "rounds": options.rounds}
    named = {"problem": problem.canonical, "schedule": Schedule.from_json(steps).hash}
    return named | measured_apart("benchmarks.kernels.scripts", request, LIMIT_S)


def stored(problem: Problem, backend: Backend, trials: int) -> Row:
    """The stored result, of whatever toolchain: both ways are compiled anew all the same."""
    try:
        return backend.show(problem.canonical, "host")
    except MissingError:
        return backend.tune(problem.canonical, "host", TuneRequest(trials), _quiet)


def scripted_steps(problem: Problem, found: Row, backend: Backend) -> list[Any]:
    """The steps of the best schedule that has a script."""
    steps: list[Any] = found["best"]["steps"]
    try:
        emit_script(problem, Schedule.from_json(steps))
    except KernelsError:
        served = found["proof"]["hash"]
        trials = backend.trials(problem.canonical, "host")
        steps = next(trial["steps"] for trial in trials if trial["hash"] == served)
    return steps


def _quiet(_seen: TrialSeen) -> None:
    """No progress is shown."""


def measure(request: Row) -> Row:
    """Both ways of one schedule in this process: each checked, then timed in turn."""
    problem, schedule = parse_problem(request["problem"]), Schedule.from_json(request["steps"])
    target, operands = resolve("host"), make_operands(problem, 0)
    native = lower(problem, schedule, target).bind(operands)
    script, seconds = compiled_script(problem, schedule, operands)
    expected = reference(problem, operands)
    for way in (native, script):
        poison(operands["C"])
        way(1)
        error, tolerance = compare(problem, operands["C"], expected)
        if not error <= tolerance:
            raise SystemExit(f"off by {error:.3g}, tolerance {tolerance:.3g}")
    before = peak_gflops(target, problem.dtype)
    ours, theirs = interleave([native, script], request["rounds"])
    peak = max(before, peak_gflops(target, problem.dtype))
    speeds = [summarise(samples.times, problem.flops) for samples in (ours, theirs)]
    return {
        "native": speeds[0].gflops,
        "native_interval": speeds[0].interval,
        "script": speeds[1].gflops,
        "script_interval": speeds[1].interval,
        "ratio": speeds[1].gflops / speeds[0].gflops,
        "peak_fraction": speeds[1].gflops / peak,
        "seconds": seconds,
    }


def compiled_script(
    problem: Problem, schedule: Schedule, operands: Operands
) -> tuple[RepeatedCall, float]:
    """The script's code bound to the operands, and the seconds to apply, lower and compile."""
    text = with_payload(problem, emit_script(problem, schedule))
    begin = time.perf_counter()
    with ir.Context() as context, ir.Location.unknown():
        diagnostics = Diagnostics(context)
        lowered, scratch = lower_module(apply_script(text, diagnostics), diagnostics)
    compiled = compile_ir(lowered, ENTRY)
    seconds = time.perf_counter() - begin
    arrays = [operands[name] for name in argument_names(problem)]
    buffers = [empty_aligned(s.shape, NUMPY_TYPES[s.element]) for s in scratch]
    return RepeatedCall(compiled, [*arrays, *buffers], operands["C"]), seconds


HEADER = (
    f"{'problem':<88} {'schedule':<16} {'native':>7} {'script':>7} {'ratio':>6} {'of peak':>8} "
    f"{'seconds':>7}"
)


def line(row: Row) -> str:
    head = f"{row['problem']:<88} {row['schedule']:<16}"
    if "failure" in row:
        return f"{head} {row['failure']}"
    return (
        f"{head} {row['native']:>7.1f} {row['script']:>7.1f} {row['ratio']:>6.2f} "
        f"{row['peak_fraction']:>8.1%} {row['seconds']:>7.2f}"
    )


def sums(rows: list[Row]) -> Row:
    """The geometric mean and the worst ratio, and shares of peak that have a bar."""
    ratios = {row["problem"]: row["ratio"] for row in rows if "failure" not in row}
    if not ratios:
        return {}
    worst = min(ratios, key=lambda name: ratios[name])
    shares = {r["problem"]: r["peak_fraction"] for r in rows if r["problem"] in ratios}
    return {
        "problems": len(rows),
        "failed": len(rows) - len(ratios),
        "geomean": exp(sum(map(log, ratios.values())) / len(ratios)),
        "worst": ratios[worst],
        "worst_problem": worst,
        "peak_fractions": {name: shares[name] for name in LARGE if name in shares},
    }


def summary(rows: list[Row]) -> str:
    """What was reached, beside what was to be reached."""
    found = sums(rows)
    if not found:
        return "nothing was measured"
    lines = [
        f"geometric mean of {found['problems'] - found['failed']}: {found['geomean']:.3f} "
        f"(bar {LEAST_GEOMEAN})",
        f"worst: {found['worst']:.3f} (bar {LEAST_RATIO}), {found['worst_problem']}",
    ]
    for problem, share in found["peak_fractions"].items():
        lines.append(f"of peak: {share:.1%} (bar {LEAST_PEAK:.0%}), {problem}")
    if found["failed"]:
        lines.append(f"failed: {found['failed']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
