"""Time predicted schedules beside the stored best of their problems.

    python -m benchmarks.searching.predictions DB [--problems 50]

Problems of the store are drawn at random. Each is predicted by the results of the others, and
without any (`alone`), and timed in interleaved rounds with its stored best. Shares are speeds over
that of the best.
"""

import argparse
import json
import random
from math import exp
from statistics import geometric_mean

import numpy as np
from sqlalchemy import select

from benchmarks.report import conditions
from tilewise.backends.service_errors import opened_sessions
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import detect
from tilewise.search.final_benchmark.rounds import rounds_of
from tilewise.search.predictor.predictor import in_use
from tilewise.search.records import Solved
from tilewise.search.runner.runner import Runner
from tilewise.service.db import models
from tilewise.service.db.session import reading
from tilewise.service.results.predictions import winners

ROUNDS, PLACEMENTS = 5, 2
Steps = list[dict[str, object]]


def stored(database: str) -> tuple[dict[Problem, Steps], list[Solved]]:
    """Return the stored bests of this processor with hot caches, and their winners."""
    target = detect().canonical
    query = select(models.Schedule).where(
        models.Schedule.target == target, models.Schedule.cache == "hot"
    )
    with opened_sessions(database) as sessions, reading(sessions) as session:
        rows = session.scalars(query)
        bests = {parse_problem(row.problem.canonical): list(row.steps) for row in rows}
        return bests, winners(session, list(bests), target)


def shares(problem: Problem, best: Steps, known: list[Solved]) -> list[float]:
    """Return the shares of a prediction by other problems, and of one without any."""
    others = [one for one in known if one.problem != problem]
    found = [in_use().predict([problem], detect(), some)[0] for some in (others, [])]
    ways = [best, *(list(one.schedule.to_json()) for one in found if one is not None)]
    different = list({json.dumps(steps): steps for steps in ways}.values())
    with Runner(problem, detect().canonical) as runner:
        reply = runner.time_finalists(different, ROUNDS, peers=False, placements=PLACEMENTS)
    at = rounds_of(reply).standings
    return [exp(at[different.index(best)] - at[different.index(steps)]) for steps in ways[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database", metavar="DB", help="URL of a store")
    parser.add_argument("--problems", type=int, default=50)
    options = parser.parse_args()
    print(conditions())
    bests, known = stored(options.database)
    drawn = random.Random(0).sample(sorted(bests, key=str), min(options.problems, len(bests)))
    found = []
    for problem in drawn:
        found.append(shares(problem, bests[problem], known))
        print(f"{problem}: {' '.join(f'{share:.3f}' for share in found[-1])}", flush=True)
    for name, column in zip(("predicted", "alone"), zip(*found, strict=True), strict=True):
        low = np.percentile(column, 10)
        print(f"{name}: geometric mean {geometric_mean(column):.3f}, 10th percentile {low:.3f}")


if __name__ == "__main__":
    main()
