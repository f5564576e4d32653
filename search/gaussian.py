"""A small Gaussian process: what a few hundred timed points say about others.

Matern 5/2 kernel with one length for each coordinate (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006, chapters 2, 4.2 and 5.4); its amplitude has a closed
form, and its lengths climb the marginal likelihood by a few coordinate steps at each fit,
from where the last fit left them.
"""

from math import erf, pi, sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEP = 1.6  # a length is tried so many times longer and shorter
SHORTEST, LONGEST = 0.1, 20.0
NOISES = (1e-4, 1e-3, 1e-2, 1e-1)  # variance of a measurement, over that of the function
USUAL_LENGTH, LENGTH_SPREAD = 0.5, 0.8  # a log-normal belief about lengths
TRIES = 6  # coordinates that one fit moves


class GaussianProcess:
    """Regression of values, about zero, on points of R^d."""

    def __init__(self) -> None:
        self._lengths: Array | None = None
        self._noise = 1e-2
        self._amplitude = 1.0
        self._turn = 0

    def fit(self, points: Array, values: Array) -> None:
        """Take in `values` at `points` (rows), and adapt the lengths to them."""
        if self._lengths is None or len(self._lengths) != points.shape[1]:
            self._lengths = np.full(points.shape[1], USUAL_LENGTH)
        self._points, self._values = points, values
        moving = [i for i in range(points.shape[1]) if np.ptp(points[:, i]) > 0]
        best = self._score(self._lengths, self._noise)
        for _ in range(min(TRIES, len(moving))):
            self._turn += 1
            i = moving[self._turn % len(moving)]
            for factor in (STEP, 1 / STEP):
                tried = self._lengths.copy()
                tried[i] = min(LONGEST, max(SHORTEST, tried[i] * factor))
                score = self._score(tried, self._noise)
                if score > best:
                    best, self._lengths = score, tried
                    break
        for noise in NOISES:
            score = self._score(self._lengths, noise)
            if score > best:
                best, self._noise = score, noise
        self._factorise()

    def believe(self, points: Array) -> None:
        """Take predictions at `points` for values there."""
        mean, _ = self.predict(points)
        self._points = np.vstack([self._points, points])
        self._values = np.concatenate([self._values, mean])
        amplitude = self._amplitude
        self._factorise()
        self._amplitude = amplitude

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and standard deviation at `points`."""
        assert self._lengths is not None, "fit comes first"
        cross = _kernel(points, self._points, self._lengths)
        mean = cross @ self._weights
        explained = np.linalg.solve(self._factor, cross.T)
        variance = np.maximum(1e-12, 1 - np.sum(explained**2, axis=0)) * self._amplitude
        return mean, np.sqrt(variance)

    def _factorise(self) -> None:
        assert self._lengths is not None
        covariance = _kernel(self._points, self._points, self._lengths)
        covariance[np.diag_indices_from(covariance)] += self._noise
        self._factor = np.linalg.cholesky(covariance)
        half = np.linalg.solve(self._factor, self._values)
        self._weights = np.linalg.solve(self._factor.T, half)
        self._amplitude = max(1e-6, float(half @ half) / len(self._values))

    def _score(self, lengths: Array, noise: float) -> float:
        """Logarithm of the marginal likelihood at the best amplitude, plus the belief's."""
        covariance = _kernel(self._points, self._points, lengths)
        covariance[np.diag_indices_from(covariance)] += noise
        factor = np.linalg.cholesky(covariance)
        half = np.linalg.solve(factor, self._values)
        count = len(self._values)
        amplitude = max(1e-6, float(half @ half) / count)
        likelihood = -0.5 * count * np.log(amplitude) - float(np.sum(np.log(np.diag(factor))))
        belief = -0.5 * float(np.sum((np.log(lengths / USUAL_LENGTH) / LENGTH_SPREAD) ** 2))
        return float(likelihood + belief)


def _kernel(left: Array, right: Array, lengths: Array) -> Array:
    a, b = left / lengths, right / lengths
    squares = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1)[None, :] - 2 * a @ b.T
    distance = np.sqrt(5 * np.maximum(squares, 0))
    kernel: Array = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return kernel


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """How far below `best` a normal value is expected to fall."""
    gap = (best - mean) / deviation
    density = np.exp(-0.5 * gap**2) / sqrt(2 * pi)
    below = 0.5 * (1 + np.array([erf(g / sqrt(2)) for g in gap]))
    improvement: Array = deviation * (gap * below + density)
    return improvement
