"""A small Gaussian process for a few hundred timed points.

It has a Matern 5/2 kernel with one length per coordinate (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006, chapters 2, 4.2 and 5.4). The amplitude has a closed form.
Each fit improves the marginal likelihood by a few coordinate steps from the last lengths, fewer
with more points. Squared differences and correlations are reused between the likelihoods of a fit.
"""

from dataclasses import dataclass
from math import erf, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEP = 1.6  # a length is tried so many times longer and shorter
SHORTEST, LONGEST = 0.1, 20.0
NOISES = (1e-4, 1e-3, 1e-2, 1e-1)  # variance of a measurement, over that of the function
USUAL_LENGTH, LENGTH_SPREAD = 0.5, 0.8  # a log-normal belief about lengths
TRIES, LEAST_TRIES = 6, 2  # coordinates that one fit moves, and once it has many points
FEW = 64  # points, up to which lengths and noise may still have far to go
LEAST_AMPLITUDE = 1e-6
BLOCK = 48  # rows; numpy has no solution of triangular systems but the general one


@dataclass(frozen=True, slots=True)
class _Fitted:
    """The values under one choice of lengths and noise.

    Attributes:
        factor: L, lower, where L L' is the correlation of the points with the noise.
        half: L^-1 times the values.
        amplitude: the likeliest variance of the function.
        likelihood: logarithm of the marginal likelihood at that amplitude.
    """

    factor: Array
    half: Array
    amplitude: float
    likelihood: float


class GaussianProcess:
    """Regression of values, about zero, on points of R^d."""

    def __init__(self) -> None:
        self._lengths: Array | None = None
        self._noise = 1e-2
        self._turn = 0

    def fit(self, points: Array, values: Array, more: Array | None = None) -> None:
        """Fit values at points (rows), and adapt the lengths.

        `more` are variances of each value's error beyond the common noise.
        """
        if self._lengths is None or len(self._lengths) != points.shape[1]:
            self._lengths = np.full(points.shape[1], USUAL_LENGTH)
        self._points = points
        data = _Data(points, values, np.zeros(len(points)) if more is None else more)
        lengths, noise = self._lengths, self._noise
        correlation = data.correlation(lengths)
        best = data.fitted(correlation, noise)
        score = best.likelihood + _belief(lengths)
        tries = max(LEAST_TRIES, TRIES * FEW // max(FEW, len(points)))
        for _ in range(min(tries, len(data.moving))):
            self._turn += 1
            i = data.moving[self._turn % len(data.moving)]
            for length in (lengths[i] * STEP, lengths[i] / STEP):
                tried = lengths.copy()
                tried[i] = min(LONGEST, max(SHORTEST, length))
                other = data.correlation(tried)
                found = data.fitted(other, noise)
                if found.likelihood + _belief(tried) > score:
                    lengths, correlation, best = tried, other, found
                    score = found.likelihood + _belief(tried)
                    break
        for other_noise in _others(noise, len(points)):
            found = data.fitted(correlation, other_noise)
            if found.likelihood > best.likelihood:
                best, noise = found, other_noise
        self._lengths, self._noise = lengths, noise
        self._factor, self._half, self._amplitude = best.factor, best.half, best.amplitude

    def believe(self, points: Array) -> None:
        """Assume the predictions at `points` as values.

        That changes no other prediction and makes those nearby more certain.
        """
        explained = self._explained(points)
        rest = self._correlation(points, points) - explained.T @ explained
        rest[np.diag_indices_from(rest)] += self._noise
        count, more = len(self._factor), len(points)
        factor = np.zeros((count + more, count + more))
        factor[:count, :count] = self._factor
        factor[count:, :count] = explained.T
        factor[count:, count:] = np.linalg.cholesky(rest)
        self._factor = factor
        self._half = np.concatenate([self._half, np.zeros(more)])
        self._points = np.vstack([self._points, points])

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation at `points`."""
        explained = self._explained(points)
        mean: Array = self._half @ explained
        left = np.maximum(1e-12, 1 - np.einsum("ij,ij->j", explained, explained))
        return mean, np.sqrt(left * self._amplitude)

    def _explained(self, points: Array) -> Array:
        """Return L^-1 times the correlations with `points`."""
        return _forward(self._factor, self._correlation(self._points, points))

    def _correlation(self, left: Array, right: Array) -> Array:
        assert self._lengths is not None, "fit comes first"
        a, b = left / self._lengths, right / self._lengths
        squares = a @ (-2 * b.T)
        squares += np.einsum("ij,ij->i", a, a)[:, None]
        squares += np.einsum("ij,ij->i", b, b)
        return _matern(np.maximum(squares, 0, out=squares))


class _Data:
    """Points and values of one fit; `moving` are coordinates in which the points differ."""

    def __init__(self, points: Array, values: Array, more: Array) -> None:
        count = len(points)
        self.moving = np.flatnonzero(np.ptp(points, axis=0) > 0).tolist()
        rows, cols = np.tril_indices(count, -1)
        coordinates = np.ascontiguousarray(points[:, self.moving].T)
        self._squares: Array = np.take(coordinates, rows, axis=1)
        self._squares -= np.take(coordinates, cols, axis=1)
        self._squares *= self._squares
        self._norm = float(values @ values)
        # The amplitude is not known yet; that of values without correlation is.
        self._diagonal = 1 + more / max(LEAST_AMPLITUDE, self._norm / count)
        self._matrix = np.zeros((count + 1, count + 1))
        self._matrix[count, :count] = values
        self._flat = self._matrix.reshape(-1)
        self._below = rows * (count + 1) + cols

    def correlation(self, lengths: Array) -> Array:
        """Return the correlations below the diagonal, row by row."""
        return _matern(lengths[self.moving] ** -2 @ self._squares)

    def fitted(self, correlation: Array, noise: float) -> _Fitted:
        """Return the values under correlations and a noise.

        The values are the last row of the factorised matrix, which yields L^-1 times the values.
        Its corner exceeds what they can amount to, since no eigenvalue is below the noise.
        """
        count = len(self._matrix) - 1
        self._flat[self._below] = correlation
        self._flat[: -1 : count + 2] = self._diagonal + noise
        self._flat[-1] = 1 + 2 * self._norm / noise
        whole = np.asarray(np.linalg.cholesky(self._matrix), np.float64)
        half = whole[count, :count]
        amplitude = max(LEAST_AMPLITUDE, float(half @ half) / count)
        volume = float(np.log(whole.diagonal()[:count]).sum())
        likelihood = -0.5 * count * log(amplitude) - volume
        return _Fitted(whole[:count, :count], half, amplitude, likelihood)


def _others(noise: float, count: int) -> list[float]:
    """Return other noises to try: all, or with many points the neighbours."""
    at = NOISES.index(noise)
    return [n for i, n in enumerate(NOISES) if i != at and (count <= FEW or abs(i - at) == 1)]


def _forward(factor: Array, right: Array) -> Array:
    """Solve a lower triangular system by blocks of rows."""
    solved = np.empty_like(right)
    for i in range(0, len(factor), BLOCK):
        rows = slice(i, i + BLOCK)
        rest = right[rows] - factor[rows, :i] @ solved[:i]
        solved[rows] = np.linalg.inv(factor[rows, rows]) @ rest
    return solved


def _belief(lengths: Array) -> float:
    """Return the logarithm of the prior of the lengths."""
    apart = np.log(lengths / USUAL_LENGTH) / LENGTH_SPREAD
    return -0.5 * float(apart @ apart)


def _matern(squares: Array) -> Array:
    """Return Matern 5/2 of squared distances in units of the lengths, in place.

    New memory pages would take longer than the arithmetic.
    """
    squares *= 5
    distance = np.sqrt(squares)
    squares /= 3
    squares += distance
    squares += 1
    squares *= np.exp(np.negative(distance, out=distance), out=distance)
    return squares


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return how far below `best` a normal value is expected to fall."""
    gap = (best - mean) / deviation
    density = np.exp(-0.5 * gap**2) / sqrt(2 * pi)
    below = 0.5 * (1 + np.array([erf(g) for g in (gap / sqrt(2)).tolist()]))
    improvement: Array = deviation * (gap * below + density)
    return improvement
