"""Fit the weights of the analytical model's costs to recorded spaces.

    python -m benchmarks.replay.fit [SPACE ...] [--without SPACE | --judge CPU]

Least squares of the logarithm's errors with weights of at least zero, over the schedules
within three times the best of each space, the fastest counting most; every space counts alike,
and has a factor of its own. Prints the weights in cycles
for `tilewise.kernels.target.costs`, and how well they rank each space: the speed of the schedule
that the model likes best as a share of the best, and Spearman's correlation. A space that is
left out shows how the weights do on a problem that they were not fitted to; so do, with
`--judge`, costs that are shipped.
"""

import argparse
import sys
from dataclasses import astuple
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from benchmarks.places import SPACES
from benchmarks.replay.problems import PROBLEMS
from benchmarks.searching.warm_cold import FITTED_COSTS
from tilewise.search.model.amounts import AMOUNTS, READS, UNHIDDEN
from tilewise.search.model.analytical import amounts
from tilewise.search.recording import Recording
from tilewise.search.space.space import Space

SLOWEST = 3.0
WEAK = 1e-3
FAST = 0.15  # a schedule so much slower than the best counts half

Array = NDArray[np.float64]


def read(path: Path) -> tuple[Array, Array]:
    """The amounts (rows) and times in us of a recording's schedules."""
    recording = Recording.load(path)
    has_lines = "image_rows" in recording.parameters
    space = Space(recording.problem, recording.target, has_lines)
    trials = [t for t in recording.by_time() if space.holds(t.params)]
    rows = [[amounts(space, t.params)[name] for name in AMOUNTS] for t in trials]
    return np.array(rows), np.array([recording.time_us(t) for t in trials])


def predict(rows: Array, weights: Array, overlap: float) -> Array:
    """Cycles of each row of amounts, as `tilewise.search.model.analytical.Model` adds them."""
    cycles = rows * weights
    traffic = cycles[:, [name in READS for name in AMOUNTS]].sum(axis=1)
    extra = cycles[:, [name in UNHIDDEN for name in AMOUNTS]].sum(axis=1)
    computing = cycles.sum(axis=1) - traffic - extra
    both: Array = (computing**overlap + traffic**overlap) ** (1 / overlap)
    return extra + both


def fit(spaces: list[tuple[Array, Array]]) -> tuple[Array, float]:
    """Weights for each cost in cycles, and the overlap."""
    near = [(rows[t < SLOWEST * t.min()], t[t < SLOWEST * t.min()]) for rows, t in spaces]
    scale = np.max([rows.max(axis=0) / rows[:, 0].max() for rows, _ in near], axis=0)
    scale = 1 / np.maximum(scale, 1e-9)
    weights = [1 / (1 + (t / t.min() - 1) / FAST) / np.sqrt(len(t)) for _, t in near]

    def errors(x: Array) -> Array:
        parts = []
        for (rows, times), weight in zip(near, weights, strict=True):
            error = np.log(predict(rows, x[:-1] * scale, x[-1])) - np.log(times)
            parts.append(weight * (error - np.average(error, weights=weight)))
        # What nothing speaks for stays near zero.
        return np.concatenate([*parts, WEAK * x[:-1], [x[0] - 1]])

    start = np.full(len(AMOUNTS) + 1, 0.1)
    start[0], start[-1] = 1.0, 1.5
    lowest = np.append(np.full(len(AMOUNTS), 1e-9), 1.0)
    highest = np.append(np.full(len(AMOUNTS), np.inf), 8.0)
    found = least_squares(errors, start, bounds=(lowest, highest)).x
    weights_found: Array = found[:-1] * scale
    return weights_found / weights_found[0], float(found[-1])


def main() -> int:
    """Fit, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("spaces", nargs="*", type=Path)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--without", default="", help="judge this one, do not fit to it")
    either.add_argument("--judge", choices=FITTED_COSTS, help="fit nothing, judge these costs")
    args = parser.parse_args()
    paths = args.spaces or [SPACES / f"{name}.json.gz" for name in PROBLEMS]
    data = {f"{path.parent.name}/{path.name.split('.')[0]}": read(path) for path in paths}
    if args.judge:
        *cycles, overlap = astuple(FITTED_COSTS[args.judge])
        weights = np.array(cycles)
    else:
        used = [pair for name, pair in data.items() if name.split("/")[1] != args.without]
        weights, overlap = fit(used)
        for name, weight in zip(AMOUNTS, weights, strict=True):
            print(f"    {name}={weight:.4g},")
        print(f"    overlap={overlap:.3g},")
    for name, (rows, times) in data.items():
        predicted = predict(rows, weights, overlap)
        share = times.min() / times[np.argmin(predicted)]
        ten = times.min() / times[np.argsort(predicted)[:10]].min()
        rank = spearmanr(predicted, times).statistic
        print(f"{name}: first {share:.1%}, best of ten {ten:.1%}, rank correlation {rank:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
