"""Boosted regression trees in NumPy: a fit on histograms, and batched inference.

After Friedman, Greedy Function Approximation: A Gradient Boosting Machine (Annals of Statistics
29(5), 2001), with random rows and columns for each tree and splits between quantiles. Every tree
has the same depth, so that inference moves all rows down one level at a time.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.intp]

TREES, DEPTH, RATE = 120, 4, 0.1
BINS = 32  # of a feature, by quantiles
ROWS, COLUMNS = 0.7, 0.5  # shares that each tree sees
SHRINKAGE = 1.0  # added to the weight of a leaf, in rows
LEAVES, NODES = 2**DEPTH, 2**DEPTH - 1


@dataclass(frozen=True)
class Trees:
    """A sum of trees; rows are trees.

    Attributes:
        features: the column that each inner node compares, level by level.
        thresholds: a row of a larger value goes right.
        leaves: what each leaf adds.
    """

    features: Ints
    thresholds: Array
    leaves: Array

    def predict(self, rows: Array) -> Array:
        """Return the sum of all trees for each row."""
        each, total = np.arange(len(rows)), np.zeros(len(rows))
        for features, thresholds, leaves in zip(
            self.features, self.thresholds, self.leaves, strict=True
        ):
            node = np.zeros(len(rows), dtype=np.intp)
            for _ in range(DEPTH):
                node = 2 * node + 1 + (rows[each, features[node]] > thresholds[node])
            total += leaves[node - NODES]
        return total

    @classmethod
    def fit(cls, rows: Array, values: Array, weights: Array, seed: int = 0) -> "Trees":
        """Return trees of the least squares of weighted values."""
        random = np.random.default_rng(seed)
        edges = [np.unique(np.quantile(column, np.linspace(0, 1, BINS + 1)[1:-1]))
                 for column in rows.T]  # fmt: skip
        binned = np.stack(
            [np.searchsorted(edge, column) for edge, column in zip(edges, rows.T, strict=True)], 1
        )
        weights, left = weights / weights.mean(), values.copy()
        made = []
        for _ in range(TREES):
            used = np.flatnonzero(random.random(len(rows)) < ROWS)
            columns = np.flatnonzero(random.random(rows.shape[1]) < COLUMNS)
            features, cuts, node = _grown(binned, left * weights, weights, used, columns)
            sums = np.bincount(node[used], (left * weights)[used], LEAVES)
            leaves = RATE * sums / (np.bincount(node[used], weights[used], LEAVES) + SHRINKAGE)
            left -= leaves[node]
            thresholds = [
                edges[feature][cut] if cut < len(edges[feature]) else np.inf
                for feature, cut in zip(features, cuts, strict=True)
            ]
            made.append((features, thresholds, leaves))
        return cls(*(np.array(part) for part in zip(*made, strict=True)))


def _grown(
    binned: Ints, slopes: Array, weights: Array, used: Ints, columns: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return the columns and cuts of a tree's nodes, and the leaf of each row."""
    features, cuts = np.zeros(NODES, np.intp), np.full(NODES, BINS)
    node = np.zeros(len(binned), np.intp)
    for level in range(DEPTH):
        count, first = 2**level, 2**level - 1
        best = np.full(count, 1e-9)
        here = node[used] * BINS
        for column in columns:
            place = here + binned[used, column]
            shape = (count, BINS)
            slope = np.bincount(place, slopes[used], count * BINS).reshape(shape).cumsum(1)
            weight = np.bincount(place, weights[used], count * BINS).reshape(shape).cumsum(1)
            gain = _worth(slope, weight) + _worth(slope[:, -1:] - slope, weight[:, -1:] - weight)
            gain -= _worth(slope[:, -1:], weight[:, -1:])
            cut = gain.argmax(1)
            found = gain[np.arange(count), cut]
            better = np.flatnonzero(found > best)
            best[better] = found[better]
            features[first + better], cuts[first + better] = column, cut[better]
        at = first + node
        node = 2 * node + (binned[np.arange(len(binned)), features[at]] > cuts[at])
    return features, cuts, node


def _worth(slope: Array, weight: Array) -> Array:
    worth: Array = slope**2 / (weight + SHRINKAGE)
    return worth
