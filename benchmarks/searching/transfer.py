"""Warm against cold: searches with and without what near problems' searches have taught.

    python -m benchmarks.searching.transfer [--seeds 40] [--sampler NAME] [--each] [--spaces DIR]
                                  [--costs-of CPU]

Everything is replayed on recorded spaces (`benchmarks.replay.record`), without timing. The
store of a warm search holds what searches of the other problems left there: for each of them the
trials of one cold search of `STORED` trials, several stores in turn, so that no
one lucky search decides. The replay uses what `tilewise.search.transfer.starting_points` proposes;
a point that was not recorded is replaced by the nearest that was.

Without `--each` the unseen shapes are searched, and the stores hold the folder's other problems:
those that the model was fitted to, or the unseen shapes' relatives, as they are at another
batch or width. With `--each` every recorded space is searched once, and the stores hold all the
others. With `--costs-of` a search begins with the costs of another processor, as it does on one
that none were fitted to.

The first trial of a search is the model's own, warm or cold; where that is within 2% of the best
no store can help. So means are given beside the medians, and the sums over all shapes. Seconds are
those of compiling and of the samples, as they were recorded.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, mean, median

from benchmarks.memory_store import MemoryStore
from benchmarks.places import SPACES
from benchmarks.replay.problems import ALL, UNSEEN
from benchmarks.replay.replay import RecordedSpace, replay
from benchmarks.searching.warm_cold import FIRST_SEED, NEAR, Counts, add_costs_of, costs_of
from tilewise.kernels.target.costs import Costs
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.recording import Recording
from tilewise.search.records import DEFAULT_SAMPLER, SAMPLERS, Solved, TuneRequest
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space
from tilewise.search.transfer.starting_points import warmed

MOST = 200
STORED = 64  # trials of each search that filled the store
STORES = 5


@dataclass(frozen=True)
class Row(Counts):
    """One shape: trials of each search until within 2% of the best, by seed.

    Attributes:
        starts: mean number of points that near problems offered.
        cold_s, warm_s: mean seconds of those trials.
    """

    text: str
    starts: float
    cold_s: float
    warm_s: float


def searched(space: RecordedSpace, costs: Costs | None, sampler: str, seed: int) -> Solved:
    """What a cold search of a recorded space leaves in a store."""
    run = replay(space, TuneRequest(trials=STORED, seed=seed, sampler=sampler), costs=costs)
    return Solved.of(space.problem, space.target.canonical, run.trials)


def compare(
    name: str,
    space: RecordedSpace,
    costs: Costs | None,
    stores: list[dict[str, Solved]],
    sampler: str,
    seeds: int,
) -> Row:
    """Search a space cold and warm with the same seeds; its own trials are in no store."""
    begins = AnalyticalModel(
        Space(space.problem, space.target, space.has_scripts), costs or space.target.core.costs
    )
    beginnings = []
    for store in stores:
        others = MemoryStore(known for other, known in store.items() if other != name)
        model, starts = warmed(begins, others)
        beginnings.append((model.costs, starts))
    cold, cold_s = _searches(space, [(begins.costs, [])], sampler, seeds)
    warm, warm_s = _searches(space, beginnings, sampler, seeds)
    offered = mean(len(points) for _, points in beginnings)
    return Row(cold, warm, ALL[name], offered, cold_s, warm_s)


def _searches(
    space: RecordedSpace, beginnings: list[tuple[Costs, list[Point]]], sampler: str, seeds: int
) -> tuple[list[int], float]:
    """Trials of each search until within 2% of the best, and their mean seconds.

    Args:
        space: what was recorded.
        beginnings: the model's costs and starting points, taken in turn.
    """
    recording = space.recording
    limit = recording.time_us(recording.by_time()[0]) * NEAR
    needed, seconds = [], 0.0
    for seed in range(seeds):
        costs, starts = beginnings[seed % len(beginnings)]
        request = TuneRequest(trials=MOST, seed=seed, sampler=sampler)
        run = replay(space, request, until_us=limit, starts=starts, costs=costs)
        needed.append(run.trials_to(limit) or MOST + 1)
        seconds += sum(trial.compile_s + sum(trial.samples) for trial in run.trials)
    return needed, seconds / seeds


def table(rows: list[Row]) -> str:
    """The rows as Markdown, with the sums and the geometric means."""
    heads = ["shape", "starting points", "cold (mean)", "warm (mean)", "warm/cold (of means)"]
    lines = ["| " + " | ".join([*heads, "seconds cold, warm"]) + " |", "|---|" + "---:|" * 5]
    for row in rows:
        cold, warm = (f"{median(v):g} ({mean(v):.1f})" for v in (row.cold, row.warm))
        ratios = f"{row.ratio:.2f} ({row.mean_ratio:.2f})"
        lines.append(
            f"| `{row.text}` | {row.starts:g} | {cold} | {warm} | {ratios} "
            f"| {row.cold_s:.1f}, {row.warm_s:.1f} |"
        )
    helped = [row for row in rows if row.starts and median(row.cold) > 1]
    colds, warms = sum(mean(row.cold) for row in rows), sum(mean(row.warm) for row in rows)
    lines += [
        "",
        f"Geometric mean of warm/cold: {geometric_mean([r.ratio for r in rows]):.2f} "
        f"({geometric_mean([r.mean_ratio for r in rows]):.2f} of means); worst of means: "
        f"{max(r.mean_ratio for r in rows):.2f}. Mean trials over all shapes: cold {colds:.0f}, "
        f"warm {warms:.0f}.",
    ]
    if helped:
        lines.append(
            f"Of {len(rows)} shapes {len(helped)} have a near problem and a first trial that is "
            f"not within 2% yet; theirs is {geometric_mean([r.ratio for r in helped]):.2f} "
            f"({geometric_mean([r.mean_ratio for r in helped]):.2f} of means)."
        )
    return "\n".join(lines)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--sampler", choices=SAMPLERS, default=DEFAULT_SAMPLER)
    parser.add_argument("--each", action="store_true", help="every space, from all the others")
    add_costs_of(parser)
    parser.add_argument("--spaces", type=Path, default=SPACES, help="a folder of recordings")
    args = parser.parse_args()
    paths = {name: args.spaces / f"{name}.json.gz" for name in ALL}
    names = [name for name, path in paths.items() if path.exists()]
    spaces = {name: RecordedSpace.of(Recording.load(paths[name])) for name in names}
    own = [space.target.core.costs for space in spaces.values()]
    costs = costs_of(parser, args.costs_of, own) if args.costs_of else None
    stores = [
        {
            name: searched(spaces[name], costs, args.sampler, FIRST_SEED + number)
            for name in names
            if args.each or name not in UNSEEN
        }
        for number in range(STORES)
    ]
    tried = names if args.each else [name for name in names if name in UNSEEN]
    rows = [compare(name, spaces[name], costs, stores, args.sampler, args.seeds) for name in tried]
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
