"""Fit the weights of the analytical model's costs to recorded spaces.

    python -m benchmarks.replay.fit [SPACE ...] [--without SPACE]

Least squares of relative errors with weights of at least zero, over the schedules within
three times the best of each space; every space counts alike. Prints the weights in cycles
for `search.model.COSTS`, and how well they rank each space: the speed of the schedule that
the model likes best as a share of the best, and Spearman's correlation. A space that is
left out shows how the weights do on a problem that they were not fitted to.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.stats import spearmanr

from benchmarks.replay.record import FOLDER
from search.model import COSTS, amounts
from search.recording import Recording
from search.space import Space

SLOWEST = 3.0
FAST = 0.15  # a schedule so much slower than the best counts half

Array = NDArray[np.float64]


def read(path: Path) -> tuple[Array, Array]:
    """The amounts (rows) and times in us of a recording's schedules."""
    recording = Recording.load(path)
    space = Space(recording.problem, recording.target)
    trials = [t for t in recording.by_time() if space.holds(t.params)]
    rows = [[amounts(space, t.params)[name] for name in COSTS] for t in trials]
    return np.array(rows), np.array([recording.time_us(t) for t in trials])


def fit(spaces: list[tuple[Array, Array]]) -> Array:
    """Weights in us for each cost."""
    parts = []
    for rows, times in spaces:
        near = times < SLOWEST * times.min()
        weight = 1 / (1 + (times[near] / times.min() - 1) / FAST)
        weight /= np.sqrt(np.sum(weight**2))
        parts.append(rows[near] / times[near, None] * weight[:, None])
    targets = np.concatenate(
        [
            (w := 1 / (1 + (t[t < SLOWEST * t.min()] / t.min() - 1) / FAST)) / np.sqrt(np.sum(w**2))
            for _, t in spaces
        ]
    )
    matrix = np.vstack(parts)
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-30)
    weights, _ = nnls(matrix / scale, targets)
    return weights / scale


def main() -> int:
    """Fit, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("spaces", nargs="*", type=Path)
    parser.add_argument("--without", default="", help="judge this one, do not fit to it")
    args = parser.parse_args()
    paths = args.spaces or sorted(FOLDER.glob("*.json.gz"))
    data = {path.name.split(".")[0]: read(path) for path in paths}
    weights = fit([pair for name, pair in data.items() if name != args.without])
    cycle = weights[list(COSTS).index("multiply_adds")] or 1.0
    for name, weight in zip(COSTS, weights, strict=True):
        print(f"    {name!r}: {weight / cycle:.4g},")
    for name, (rows, times) in data.items():
        predicted = rows @ weights
        share = times.min() / times[np.argmin(predicted)]
        ten = times.min() / times[np.argsort(predicted)[:10]].min()
        rank = spearmanr(predicted, times).statistic
        print(f"{name}: first {share:.1%}, best of ten {ten:.1%}, rank correlation {rank:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
