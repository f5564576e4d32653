"""Trials per second, what a trial costs beside compiling and timing, and where the time goes.

    python -m benchmarks.measuring.trial_rate [PROBLEM ...] [--trials 64] [--warm] [--serial]

Each problem is searched by `tune`, its trials stored in a new SQLite database. A cold start
has an empty cache folder (no driver, no micro-kernel) and counts the start of the processes.
OPENBLAS_NUM_THREADS=1 holds the search to the thread that `tilewise` gives it.
`ms beside` is what passes between two trials, `of work` the processor time in it.
"""

import argparse
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import conditions
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import tune
from tilewise.search.records import TuneRequest, TuneResult
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner
from tilewise.service.db import schema, writing
from tilewise.service.db.session import make_engine, make_sessions
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.trial_store import SqlTrialStore

PROBLEMS = ("matmul:m=1024,n=1024,k=1024,dtype=f32", "matmul:m=256,n=256,k=256,dtype=f32")
SLOW = 2.0  # times the best


@dataclass
class Metered:
    """A runner that notes when it was busy, and what for."""

    runner: Runner
    overlap: bool
    entered: list[float] = field(default_factory=list)
    left: list[float] = field(default_factory=list)
    worked: list[tuple[float, float]] = field(default_factory=list)
    timing_s: list[float] = field(default_factory=list)
    compile_s: list[float] = field(default_factory=list)

    def __enter__(self) -> "Metered":
        self.runner.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)

    @property
    def ahead(self) -> int:
        return self.runner.ahead if self.overlap else 0

    def prepare(self, steps: list[Any]) -> None:
        if self.overlap:
            self.runner.prepare(steps)

    def time_finalists(self, *_: Any) -> Any:
        raise CandidateFailureError("runtime", "the finals are no part of what is measured")

    def trial(self, steps: list[Any], best_s: float | None, control: Any = None) -> Any:
        self.entered.append(time.perf_counter())
        worked = time.process_time()
        try:
            reply = self.runner.trial(steps, best_s, control)
        finally:
            self.left.append(time.perf_counter())
            self.worked.append((worked, time.process_time()))
        self.timing_s.append(reply.measure_s)
        self.compile_s.append(reply.compile_s)
        return reply


def search(problem: Problem, trials: int, overlap: bool) -> tuple[Metered, TuneResult, float]:
    """The runner's notes, the result, and when the search began."""
    request = TuneRequest(trials=trials)
    target = detect()
    metered: list[Metered] = []

    def make(problem: Problem, target: str, request: TuneRequest) -> Metered:
        metered.append(Metered(Runner(problem, target, request.seed), overlap))
        return metered[0]

    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'rate.db'}"
        schema.upgrade(url)
        engine = make_engine(url)
        sessions = make_sessions(engine)
        with writing(sessions) as session:
            made = queue.create_or_join(session, problem, target.canonical, request, "benchmark")
            assert made.job is not None
            job_id = made.job.id
            held = lease.claim_one(session, job_id, me())
            assert held is not None
        store = SqlTrialStore(sessions, job_id, held)
        begin = time.perf_counter()
        result = tune(problem, target, request, store, make_runner=make)
        engine.dispose()
    return metered[0], result, begin


def report(text: str, trials: int, overlap: bool) -> str:
    """One line of the table."""
    problem = parse_problem(text)
    notes, result, begin = search(problem, trials, overlap)
    count = len(notes.left)
    whole, running = notes.left[-1] - begin, notes.left[-1] - notes.entered[0]
    between = [b - a for a, b in zip(notes.left, notes.entered[1:], strict=False)]
    worked = [b[0] - a[1] for a, b in zip(notes.worked, notes.worked[1:], strict=False)]
    ran = [t for t in result.trials if t.measurement]
    best_us = min(t.measurement.time_us for t in ran if t.measurement)
    slow = [t.measurement.time_us > SLOW * best_us for t in ran if t.measurement]
    wasted = sum(s for s, is_slow in zip(notes.timing_s, slow, strict=True) if is_slow)
    return (
        f"{text:<42} {count:>6} {count / whole:>8.1f} {count / running:>8.1f} "
        f"{1e3 * median(between):>9.1f} {1e3 * sum(worked) / count:>9.1f} "
        f"{wasted / sum(notes.timing_s):>6.1%} {1e3 * sum(notes.compile_s) / count:>9.0f} "
        f"{1e3 * sum(notes.timing_s) / count:>8.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--warm", action="store_true", help="keep the user's cache folder")
    parser.add_argument("--serial", action="store_true", help="compile in the timing process")
    options = parser.parse_args()
    print(conditions())
    print(
        f"{'problem':<42} {'trials':>6} {'/s':>8} {'/s after':>8} {'ms beside':>9} {'of work':>9} "
        f"{'slow':>6} {'compile':>9} {'timing':>8}"
    )
    for text in options.problems:
        with tempfile.TemporaryDirectory() as folder:
            if not options.warm:
                os.environ["TILEWISE_CACHE_DIR"] = folder
            print(report(text, options.trials, not options.serial), flush=True)


if __name__ == "__main__":
    main()
