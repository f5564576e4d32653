"""Warm against cold, timed: searches with and without near problems' trials in the store.

    python -m benchmarks.searching.warm_start [PROBLEM ...] [--seeds 10] [--trials 96] [--costs-of
    CPU]

For each problem and seed two near problems are searched from nothing, with as many trials as
`tune` gives by default: one of twice the rows (a convolution's pixels each way) and one of half the
columns. Then the problem itself is searched twice, cold, and warm from those two alone. With
`--costs-of` all searches begin with the costs of another processor, as they do on one that none
were fitted to.

What is the best, all those searches say together: whatever came near the fastest trial of its own
search is timed again in interleaved rounds of one fresh process, and the best of that once more,
in more rounds, of three processes. (Where such a yardstick errs, somebody is the best by luck, and
few are near that.) Counted are the trials until the first that stood within 2% of the best there;
a search that came to no such trial counts as one more than it had, and is marked.

`benchmarks.searching.transfer` asks the same of recorded spaces, where anyone can repeat it. There
the nearest recorded schedule takes the place of one that was not recorded: a small matter for a
sampler, a great one for a starting point.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import geometric_mean, mean, median

from benchmarks.memory_store import MemoryStore
from benchmarks.replay.problems import UNSEEN, relatives
from benchmarks.report import conditions
from benchmarks.searching.warm_cold import FIRST_SEED, NEAR, Counts, add_costs_of, costs_of
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import detect
from tilewise.kernels.target.costs import Costs
from tilewise.search.engine.exploration import Exploration
from tilewise.search.final_benchmark.rounds import rounds_of
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.records import Solved, TrialRecord, TuneRequest, time_us
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner
from tilewise.search.space.space import Space
from tilewise.search.transfer.starting_points import warmed

WIDE, WIDE_ROUNDS = 1.06, 3  # what is timed again first, by its own search; rounds on a placement
CLOSE, CLOSE_ROUNDS = 1.05, 10  # and once more, by what the first rounds say
ENOUGH, LEAST_ROUNDS = 1000, 2  # samples on a placement; fewer rounds where hundreds are close
PLACEMENTS = 9
PROCESSES = 3  # in which those are timed once more


@dataclass(frozen=True)
class Searched:
    """One search of up to `most` trials."""

    trials: tuple[TrialRecord, ...]
    most: int

    def first_of(self, hashes: set[str]) -> int:
        """The number, from 1, of the first trial of one of these schedules; else one too many."""
        found = (i for i, t in enumerate(self.trials, 1) if t.schedule.hash in hashes)
        return next(found, self.most + 1)

    def near_ones(self) -> dict[str, Schedule]:
        """The schedules that came near its fastest, by hash."""
        ran = [(time_us(t), t.schedule) for t in self.trials if t.measurement]
        least = min((took for took, _ in ran), default=0.0)
        return {schedule.hash: schedule for took, schedule in ran if took <= WIDE * least}


@dataclass(frozen=True)
class Row(Counts):
    """One problem: of each search, by seed, the trials it took to be near.

    Attributes:
        most: trials of a search; what never came near counts as one more.
        among: how many schedules are near, were timed twice, were timed again.
    """

    text: str
    most: int
    among: str

    def __str__(self) -> str:
        cold, warm = (
            f"{median(v):g} ({mean(v):.1f}; {min(v)} to {max(v)}{self._missed(v)})"
            for v in (self.cold, self.warm)
        )
        ratios = f"{self.ratio:.2f} ({self.mean_ratio:.2f})"
        return f"| `{self.text}` | {cold} | {warm} | {ratios} | {self.among} |"

    def _missed(self, counts: list[int]) -> str:
        missed = sum(count > self.most for count in counts)
        return f", {missed} never" if missed else ""


def searched(
    problem: Problem, request: TuneRequest, known: Sequence[Solved], costs: Costs | None
) -> Searched:
    """Search as `tune` does, without finals.

    Args:
        problem: what to search for.
        request: budget and seed.
        known: what the store holds of other problems.
        costs: to begin with; None for those of this processor.
    """
    target, store = detect(), MemoryStore(known)
    begins = AnalyticalModel(Space(problem, target), costs or target.core.costs)
    model, starts = warmed(begins, store)
    search = Exploration(model, request, store, starts)
    with Runner(problem, target.canonical, request.seed) as runner:
        for proposal in search.ahead(runner):
            search.run(runner, proposal)
        runner.settle()
    return Searched(tuple(search.trials), request.trials)


def standing(problem: Problem, schedules: dict[str, Schedule], rounds: int) -> dict[str, float]:
    """How many times longer than the fastest of them each takes, by hash; in a fresh process.

    Without any that fails there.
    """
    left = list(schedules)
    while left:
        steps = [list(schedules[found].to_json()) for found in left]
        try:
            with Runner(problem, detect().canonical) as runner:
                reply = runner.time_finalists(steps, rounds, peers=False, placements=PLACEMENTS)
        except CandidateFailureError as failure:
            if failure.index is None:
                raise
            left.pop(failure.index)
            continue
        logs = rounds_of(reply).standings
        return {found: exp(log - min(logs)) for found, log in zip(left, logs, strict=True)}
    return {}


def settled(problem: Problem, schedules: dict[str, Schedule]) -> dict[str, float]:
    """How many times longer than the fastest of them each takes, in the mean of processes."""
    fitting = ENOUGH // max(1, len(schedules))
    rounds = max(LEAST_ROUNDS, min(CLOSE_ROUNDS, fitting))
    each = [standing(problem, schedules, rounds) for _ in range(PROCESSES)]
    ran = set.intersection(*map(set, each))
    logs = {found: mean(log(one[found]) for one in each) for found in ran}
    least = min(logs.values(), default=0.0)
    return {found: exp(took - least) for found, took in logs.items()}


def compare(problem: Problem, seeds: int, trials: int, costs: Costs | None) -> Row:
    """Search a problem cold and warm with the same seeds."""
    colds, warms = [], []
    for seed in range(seeds):
        known = []
        for near in relatives(problem).values():
            found = searched(near, TuneRequest(seed=FIRST_SEED + seed), [], costs)
            known.append(Solved.of(near, detect().canonical, found.trials))
        request = TuneRequest(trials=trials, seed=seed)
        colds.append(searched(problem, request, [], costs))
        warms.append(searched(problem, request, known, costs))
    wide: dict[str, Schedule] = {}
    for search in (*colds, *warms):
        wide |= search.near_ones()
    first = standing(problem, wide, WIDE_ROUNDS)
    close = {found: wide[found] for found, over in first.items() if over <= CLOSE}
    best = {found for found, over in settled(problem, close).items() if over <= NEAR}
    cold = [search.first_of(best) for search in colds]
    warm = [search.first_of(best) for search in warms]
    among = f"{len(best)} of {len(close)} of {len(wide)}"
    return Row(cold, warm, problem.canonical, trials, among)


def summary(rows: list[Row]) -> str:
    """The sums and the geometric means of some rows."""
    colds, warms = sum(median(r.cold) for r in rows), sum(median(r.warm) for r in rows)
    mean_colds, mean_warms = sum(mean(r.cold) for r in rows), sum(mean(r.warm) for r in rows)
    missed = sum(count > row.most for row in rows for count in (*row.cold, *row.warm))
    return (
        f"Geometric mean of warm/cold: {geometric_mean([r.ratio for r in rows]):.2f} "
        f"({geometric_mean([r.mean_ratio for r in rows]):.2f} of means), worst "
        f"{max(r.ratio for r in rows):.2f} ({max(r.mean_ratio for r in rows):.2f}). All trials: "
        f"cold {colds:g}, warm {warms:g} ({mean_colds:.0f}, {mean_warms:.0f}); {missed} searches "
        f"never came near."
    )


def main() -> int:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("problems", nargs="*", default=list(UNSEEN.values()))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=96)
    add_costs_of(parser)
    args = parser.parse_args()
    costs = costs_of(parser, args.costs_of, [detect().core.costs]) if args.costs_of else None
    print(conditions())
    heads = ["problem", "cold (mean; range)", "warm", "warm/cold (of means)"]
    heads += ["within 2%, of timed twice, of timed again"]
    print("| " + " | ".join(heads) + " |\n|---|" + "---|" * (len(heads) - 1))
    rows = []
    for text in args.problems:
        rows.append(compare(parse_problem(text), args.seeds, args.trials, costs))
        print(rows[-1], flush=True)
    print(f"\n{summary(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
