"""Compare samplers on recorded spaces, without timing anything.

    python -m benchmarks.replay [SPACE ...] [--seeds 100] [--samplers surrogate,tpe,random]
    python -m benchmarks.replay --db URL --problem PROBLEM [--target T]

A space is a recording of `benchmarks/data/spaces` by name, or a file; or the trials of all stored
searches of a problem.

Prints for each space: the speed of the first trial (the analytical model alone) as a share of
the best; how many trials each sampler takes until within 2% of the best, median over
seeds; the share of trials slower than twice the best. `random` starts from the prior as
every sampler does; `draws` is random search without it, computed from the schedules that
were recorded at random, and so what random search over the whole space takes.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import comb
from pathlib import Path
from statistics import median

from benchmarks.places import SPACES
from benchmarks.replay.problems import PROBLEMS
from benchmarks.replay.replay import RecordedSpace, replay
from tilewise.kernels.errors import KernelsError
from tilewise.search.errors import RecordingError
from tilewise.search.recording import Recording
from tilewise.search.records import SAMPLERS, TuneRequest

NEAR = 1.02
SLOW = 2.0
BUDGET = 64
MOST = 200
SHARE_SEEDS = 10  # searches of `BUDGET` trials that the share of slow ones is the median of
SLOW_SAMPLERS = {"gp": 5, "cmaes": 20, "tpe": 20}
"""Most seeds of samplers that take long to think."""


@dataclass(frozen=True)
class Outcome:
    """What one sampler did on one space: medians over seeds."""

    trials: float
    worst: float
    slow_share: float
    seeds: int


@dataclass
class Row:
    """One space."""

    name: str
    schedules: int
    best_gflops: float
    near: int
    first_share: float
    draws: float
    outcomes: dict[str, Outcome] = field(default_factory=dict)


def draws_until(total: int, good: int) -> float:
    """Median number of draws, without putting back, until the first of `good` among `total`."""
    if not good:
        return float("inf")
    for drawn in range(1, total + 1):
        if comb(total - drawn, good) / comb(total, good) <= 0.5:
            return drawn
    return total


def from_database(url: str, text: str, target: str) -> Recording:
    """The trials that a database holds of a problem, as a recording."""
    from tilewise.kernels.problem import parse_problem
    from tilewise.kernels.target import resolve
    from tilewise.search.space.space import Space
    from tilewise.service.db import make_engine, reading
    from tilewise.service.db.session import make_sessions
    from tilewise.service.db.trials import record
    from tilewise.service.results import trials

    where = resolve(target)
    space = Space(parse_problem(text), where)
    with reading(make_sessions(make_engine(url))) as session:
        rows = trials.find_trials(session, problem=space.problem, target=where.canonical)
        trials = [record(trial) for trial, job in rows if job.cache == "hot"]
    if not any(t.samples for t in trials):
        raise RecordingError(f"{url} holds no timed trial of {space.problem} on {where.canonical}")
    return Recording(space.problem, where, {p.name: p.values for p in space.parameters}, trials)


def examine(
    name: str, recording: Recording, samplers: Sequence[str], seeds: int, in_flight: int
) -> Row:
    """Replay every sampler on one recording."""
    space = RecordedSpace.of(recording)
    ranked = [t for t in recording.by_time() if t.schedule.hash in space.trials]
    best_us = recording.time_us(ranked[0])
    near_us, slow_us = best_us * NEAR, best_us * SLOW
    drawn = [t for t in recording.trials if t.origin == "random"]
    good = sum(recording.time_us(t) <= near_us for t in drawn)
    first = replay(space, TuneRequest(trials=1)).times_us[0]
    row = Row(
        name,
        len(space.trials),
        recording.problem.flops / best_us / 1e3,
        sum(recording.time_us(t) <= near_us for t in ranked),
        best_us / first,
        draws_until(len(drawn), good),
    )
    for sampler in samplers:
        row.outcomes[sampler] = _outcome(space, sampler, seeds, in_flight, near_us, slow_us)
    return row


def _outcome(
    space: RecordedSpace, name: str, seeds: int, in_flight: int, near_us: float, slow_us: float
) -> Outcome:
    until, slow = [], []
    seeds = min(seeds, SLOW_SAMPLERS.get(name, seeds))
    for seed in range(seeds):
        request = TuneRequest(trials=MOST, seed=seed, sampler=name)
        run = replay(space, request, in_flight, near_us)
        until.append(run.trials_to(near_us) or MOST + 1)
        if seed < SHARE_SEEDS:
            request = TuneRequest(trials=BUDGET, seed=seed, sampler=name)
            slow.append(replay(space, request, in_flight).slow_share(slow_us))
    return Outcome(median(until), max(until), median(slow), seeds)


def table(rows: Sequence[Row], samplers: Sequence[str]) -> str:
    """The rows as Markdown."""
    heads = ["space", "schedules", "best GFLOP/s", "within 2%", "first trial", "draws"]
    heads += [f"{name} (slow)" for name in samplers]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for row in rows:
        cells = [row.name, str(row.schedules), f"{row.best_gflops:.1f}", str(row.near)]
        cells += [f"{row.first_share:.1%}", f"{row.draws:g}"]
        for name in samplers:
            one = row.outcomes[name]
            trials = f">{MOST}" if one.trials > MOST else f"{one.trials:g}"
            cells.append(f"{trials} ({one.slow_share:.0%})")
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    lines.append(f"First trial, median: {median(row.first_share for row in rows):.1%}.")
    return "\n".join(lines)


def _spaces(args: argparse.Namespace) -> dict[str, Recording]:
    if args.db:
        return {"stored": from_database(args.db, args.problem, args.target)}
    files = [Path(s) if s.endswith(".gz") else SPACES / f"{s}.json.gz" for s in args.spaces]
    files = files or [SPACES / f"{name}.json.gz" for name in PROBLEMS]
    return {path.name.split(".")[0]: Recording.load(path) for path in files}


def main() -> int:
    """Replay the named spaces, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("spaces", nargs="*", metavar="SPACE", help="names, or files")
    parser.add_argument("--db", metavar="URL", help="replay what this database holds")
    parser.add_argument("--problem", help="of the database")
    parser.add_argument("--target", default="host", help="of the database; default: host")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--samplers", default="surrogate,local,tpe,random")
    parser.add_argument("--in-flight", type=int, default=1, help="proposals before an answer")
    parser.add_argument("--json", type=Path, help="write the numbers there too")
    args = parser.parse_args()
    if args.db and not args.problem:
        parser.error("--db needs --problem")
    samplers = args.samplers.split(",")
    if unknown := set(samplers) - set(SAMPLERS):
        parser.error(f"unknown samplers: {', '.join(sorted(unknown))}")
    try:
        spaces = _spaces(args)
    except (RecordingError, KernelsError) as error:
        print(error, file=sys.stderr)
        return 2
    begin, rows = time.monotonic(), []
    for name, recording in spaces.items():
        rows.append(examine(name, recording, samplers, args.seeds, args.in_flight))
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    print(table(rows, samplers))
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
