"""A small Gaussian process: what a few hundred timed points say about others.

Matern 5/2 kernel with one length for each coordinate (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006, chapters 2, 4.2 and 5.4); its amplitude has a closed
form, and its lengths climb the marginal likelihood by a few coordinate steps at each fit,
from where the last fit left them. With more points there are fewer steps: each costs more, and
moves less.

A fit asks for the likelihood ten times or more, so what stays the same between two of those
questions is kept: the squared differences of the points in each coordinate, and for another
noise the correlations.
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
    """The values in the light of one choice of lengths and noise.

    Attributes:
        factor: L, lower, where L L' is the correlation of the points with the noise.
        half: L^-1 times the values.
        likelihood: logarithm of the marginal likelihood at the best amplitude.
    """

    factor: Array
    half: Array
    likelihood: float

    @property
    def amplitude(self) -> float:
        """The variance of the function that makes the values most likely."""
        return max(LEAST_AMPLITUDE, float(self.half @ self.half) / len(self.half))


class GaussianProcess:
    """Regression of values, about zero, on points of R^d."""

    def __init__(self) -> None:
        self._lengths: Array | None = None
        self._noise = 1e-2
        self._turn = 0

    def fit(self, points: Array, values: Array, more: Array | None = None) -> None:
        """Take in `values` at `points`, and adapt the lengths to them.

        Args:
            points: in rows.
            values: one for each.
            more: variance of what each errs by beside the noise that all have; None is nothing.
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
        """Take predictions at `points` for values there.

        That moves no other prediction, it only makes those nearby more certain.
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
        """Mean and standard deviation at `points`."""
        explained = self._explained(points)
        mean: Array = self._half @ explained
        left = np.maximum(1e-12, 1 - np.einsum("ij,ij->j", explained, explained))
        return mean, np.sqrt(left * self._amplitude)

    def _explained(self, points: Array) -> Array:
        """L^-1 times the correlations with `points`; a column's square is what is known there."""
        return _forward(self._factor, self._correlation(self._points, points))

    def _correlation(self, left: Array, right: Array) -> Array:
        assert self._lengths is not None, "fit comes first"
        a, b = left / self._lengths, right / self._lengths
        squares = a @ (-2 * b.T)
        squares += np.einsum("ij,ij->i", a, a)[:, None]
        squares += np.einsum("ij,ij->i", b, b)
        return _matern(np.maximum(squares, 0, out=squares))


class _Data:
    """Points and values of one fit, with what every choice of lengths makes use of.

    Attributes:
        moving: coordinates in which the points differ.
    """

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
        """The matrix of correlations below its diagonal, row by row."""
        return _matern(lengths[self.moving] ** -2 @ self._squares)

    def fitted(self, correlation: Array, noise: float) -> _Fitted:
        """The values in the light of correlations and a noise.

        The values are the last row of the matrix that is factorised, which makes them L^-1
        times the values without another solution. Its corner is beyond what they can amount
        to, since no eigenvalue is below the noise.
        """
        count = len(self._matrix) - 1
        self._flat[self._below] = correlation
        self._flat[: -1 : count + 2] = self._diagonal + noise
        self._flat[-1] = 1 + 2 * self._norm / noise
        whole = np.asarray(np.linalg.cholesky(self._matrix), np.float64)
        half = whole[count, :count]
        amplitude = max(LEAST_AMPLITUDE, float(half @ half) / count)
        volume = float(np.log(whole.diagonal()[:count]).sum())
        return _Fitted(whole[:count, :count], half, -0.5 * count * log(amplitude) - volume)


def _others(noise: float, count: int) -> list[float]:
    """Noises to try beside `noise`: all, and with many points the next ones."""
    at = NOISES.index(noise)
    return [n for i, n in enumerate(NOISES) if i != at and (count <= FEW or abs(i - at) == 1)]


def _forward(factor: Array, right: Array) -> Array:
    """What a lower triangular `factor` times gives `right`, a block of rows after the other."""
    solved = np.empty_like(right)
    for i in range(0, len(factor), BLOCK):
        rows = slice(i, i + BLOCK)
        rest = right[rows] - factor[rows, :i] @ solved[:i]
        solved[rows] = np.linalg.inv(factor[rows, rows]) @ rest
    return solved


def _belief(lengths: Array) -> float:
    """Logarithm of how likely the lengths are before anything is known."""
    apart = np.log(lengths / USUAL_LENGTH) / LENGTH_SPREAD
    return -0.5 * float(apart @ apart)


def _matern(squares: Array) -> Array:
    """Matern 5/2 of squared distances in units of the lengths, in their place.

    In place, since pages that are new to the process take longer than the arithmetic.
    """
    squares *= 5
    distance = np.sqrt(squares)
    squares /= 3
    squares += distance
    squares += 1
    squares *= np.exp(np.negative(distance, out=distance), out=distance)
    return squares


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """How far below `best` a normal value is expected to fall."""
    gap = (best - mean) / deviation
    density = np.exp(-0.5 * gap**2) / sqrt(2 * pi)
    below = 0.5 * (1 + np.array([erf(g) for g in (gap / sqrt(2)).tolist()]))
    improvement: Array = deviation * (gap * below + density)
    return improvement
