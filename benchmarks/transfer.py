"""Warm against cold: searches of unseen shapes, with and without what near problems have taught.

    python -m benchmarks.transfer [--seeds 100] [--sampler NAME]

The unseen shapes are recorded (`benchmarks.replay.record`), and both searches replayed on
them without timing. The store of the warm search holds the fastest point of each of the
recorded problems. The replay uses what `search.transfer` proposes; a point that was not
recorded is replaced by the nearest that was.
"""

import argparse
import sys
from statistics import geometric_mean, median

from benchmarks.replay.record import FOLDER, PROBLEMS, UNSEEN
from search.parameters import Point
from search.recording import Recording
from search.records import DEFAULT_SAMPLER, SAMPLERS, TuneRequest
from search.replay import RecordedSpace, replay
from search.space import Space
from search.store import MemoryStore
from search.transfer import starting_points

NEAR = 1.02
MOST = 200


def trials_needed(space: RecordedSpace, sampler: str, seeds: int, starts: list[Point]) -> float:
    """Trials until within 2% of the best of the space, median over seeds."""
    limit = space.recording.time_us(space.recording.by_time()[0]) * NEAR
    needed = []
    for seed in range(seeds):
        request = TuneRequest(trials=MOST, seed=seed, sampler=sampler)
        run = replay(space, request, until_us=limit, starts=starts)
        needed.append(run.trials_to(limit) or MOST + 1)
    return median(needed)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--sampler", choices=SAMPLERS, default=DEFAULT_SAMPLER)
    args = parser.parse_args()
    store = MemoryStore([Recording.load(FOLDER / f"{name}.json.gz").solved() for name in PROBLEMS])
    ratios = []
    print("| shape | starting points | cold | warm | warm/cold |\n|---|---:|---:|---:|---:|")
    for name, text in UNSEEN.items():
        recording = Recording.load(FOLDER / f"{name}.json.gz")
        starts = starting_points(Space(recording.problem, recording.target), store)
        space = RecordedSpace.of(recording)
        cold = trials_needed(space, args.sampler, args.seeds, [])
        warm = trials_needed(space, args.sampler, args.seeds, starts)
        ratios.append(warm / cold)
        print(f"| `{text}` | {len(starts)} | {cold:g} | {warm:g} | {warm / cold:.2f} |")
    print(f"\nGeometric mean of warm/cold: {geometric_mean(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
