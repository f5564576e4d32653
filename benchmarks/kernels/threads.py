"""Two threads against one, and against OpenBLAS on two, in the same interleaved rounds.

    python -m benchmarks.kernels.threads [PROBLEM ...] [--threads 2] [--trials 64] [--out FILE.json]

Tunes each problem for one thread and for several, then times both winners and OpenBLAS
in one process.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from tilewise.backends.base import TrialSeen
from tilewise.backends.choose import local_backend
from tilewise.bench.compare import bench_runner
from tilewise.bench.machine import processor
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import resolve
from tilewise.search.records import TuneRequest
from tilewise.search.timing.samples import summarise

PROBLEMS = ("matmul:m=1024,n=1024,k=1024,dtype=f32", "matmul:m=2048,n=2048,k=2048,dtype=f32")
ROUNDS = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--db", help="default: an empty one")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(HEADER)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        url = options.db or f"sqlite:///{folder}/results.db"
        for problem in options.problems:
            rows.append(compare(problem, options.threads, options.trials, url))
            print(line(rows[-1]), flush=True)
    if options.out:
        found = {"processor": processor(), "threads": options.threads, "rows": rows}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


def compare(text: str, threads: int, trials: int, url: str) -> dict[str, Any]:
    """GFLOP/s of one thread, of several, and of OpenBLAS on several, with intervals."""
    problem = parse_problem(text)
    targets = [resolve(f"cpu:host,threads={n}").canonical for n in (threads, 1)]
    steps = [best_steps(problem.canonical, target, trials, url) for target in targets]
    with bench_runner(problem, targets[0]) as runner:
        reply = runner.time_finalists(steps, ROUNDS, peers=True)
    speeds = {
        "several": reply.finalists[0].times[0],
        "one": reply.finalists[1].times[0],
        "openblas": reply.peers["openblas"].times[0],
    }
    found = {name: summarise(times, problem.flops) for name, times in speeds.items()}
    return {
        "problem": problem.canonical,
        "peak_gflops": reply.peak_gflops,
        **{name: {"gflops": m.gflops, "interval": m.interval} for name, m in found.items()},
        "over_one": found["several"].gflops / found["one"].gflops,
        "over_openblas": found["several"].gflops / found["openblas"].gflops,
    }


def best_steps(problem: str, target: str, trials: int, url: str) -> list[Any]:
    """The steps of the best schedule for a target, searched for if need be."""
    with local_backend(url) as backend:
        request = TuneRequest(trials)
        steps: list[Any] = backend.tune(problem, target, request, _quiet)["best"]["steps"]
    return steps


def _quiet(_seen: TrialSeen) -> None:
    """No progress is shown."""


HEADER = f"{'problem':<44} {'several':>8} {'one':>8} {'OpenBLAS':>9} {'/one':>6} {'/OpenBLAS':>9}"


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['problem']:<44} {row['several']['gflops']:>8.1f} {row['one']['gflops']:>8.1f} "
        f"{row['openblas']['gflops']:>9.1f} {row['over_one']:>6.2f} {row['over_openblas']:>9.2f}"
    )


if __name__ == "__main__":
    main()
