"""Winners of a quiet worker of a cluster beside those of the embedded engine, on one machine.

    python -m tests.service.cluster.winners [PROBLEM ...] [--trials 64]

Each problem is searched three times with one seed: by a service whose own worker process runs it,
by a worker of a cluster, and by the first again in a fresh database. Then a fresh process times the
three winners in interleaved rounds, as `benchmarks.searching.winners` does. The second search of
the embedded engine tells how far winners of one engine are apart.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from math import exp
from pathlib import Path
from typing import Any

from benchmarks.report import conditions
from benchmarks.searching.winners import PLACEMENTS, PROBLEMS, ROUNDS
from tests.service.cluster.farm import EMBEDDED, Farm
from tests.service.cluster.tuners import REAL
from tests.service.processes import wait_until
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import detect
from tilewise.search.final_benchmark.rounds import rounds_of
from tilewise.search.runner.runner import Runner
from tilewise.service.db import make_engine, models, reading
from tilewise.service.db.session import make_sessions

CLUSTER = ("scheduler", "service", "driver", "worker-1")


def winner(names: Sequence[str], problem: Problem, trials: int) -> list[Any]:
    """The steps of the best schedule that a fresh farm finds."""
    with closing(Farm(Path(tempfile.mkdtemp(prefix="tilewise-winners-")), names)) as farm:
        farm.wait_for_workers(1)
        job = farm.ask(problem.canonical, seed=REAL, trials=trials)
        wait_until(lambda: farm.job(job)["state"] not in ("queued", "running"), 3600)
        engine = make_engine(farm.url)
        with reading(make_sessions(engine)) as session:
            row = session.query(models.Schedule).filter_by(job_id=job).one()
            steps = list(row.steps)
        engine.dispose()
        return steps


def times(problem: Problem, schedules: Sequence[list[Any]]) -> list[float]:
    """Of each schedule its time over the first one's, all timed in turn."""
    different = [list(each) for each in {str(steps): steps for steps in schedules}.values()]
    with Runner(problem, detect().canonical) as runner:
        reply = runner.finals(different, ROUNDS, peers=False, placements=PLACEMENTS)
    standing = dict(zip(map(str, different), rounds_of(reply).standings, strict=True))
    return [exp(standing[str(steps)] - standing[str(schedules[0])]) for steps in schedules]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--trials", type=int, default=64)
    options = parser.parse_args(arguments)
    sys.stdout.write(f"{conditions()}\n{'time over the embedded engine':<60}")
    sys.stdout.write(f"{'worker':>8}{'embedded again':>16}\n")
    for text in options.problems:
        problem = parse_problem(text)
        engines = ((EMBEDDED,), CLUSTER, (EMBEDDED,))
        found = [winner(names, problem, options.trials) for names in engines]
        _, worker, again = times(problem, found)
        sys.stdout.write(f"{text:<60}{worker:>8.3f}{again:>16.3f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
