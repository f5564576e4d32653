"""The Gaussian process against the formulas of the book, with whole matrices inverted."""

import numpy as np
import pytest

from tilewise.search.samplers.gaussian_process import (
    BLOCK,
    USUAL_LENGTH,
    GaussianProcess,
    expected_improvement,
)

FEW, MANY = 7, 2 * BLOCK + 5


def matern(left, right, lengths):
    apart = (left[:, None, :] - right[None, :, :]) / lengths
    distance = np.sqrt(5 * np.sum(apart**2, axis=2))
    return (1 + distance + distance**2 / 3) * np.exp(-distance)


def by_the_book(process, points, values, others, more=0.0):
    """Mean and deviation at `others` by equations 2.23 and 2.24, with a scaled kernel."""
    lengths, noise = process._lengths, process._noise
    noises = np.diag(np.broadcast_to(noise + more / np.mean(values**2), len(points)))
    inverse = np.linalg.inv(matern(points, points, lengths) + noises)
    cross = matern(others, points, lengths)
    amplitude = values @ inverse @ values / len(values)
    left = 1 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    return cross @ inverse @ values, np.sqrt(left * amplitude)


def data(count, seed=1):
    random = np.random.default_rng(seed)
    points = random.random((count, 4))
    points[:, 2] = 0.5  # a coordinate in which they do not differ
    return points, np.sin(4 * points[:, 0]) + points[:, 1] ** 2 - 0.7


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_predictions_are_those_of_the_book(count, noise):
    """Also where some values may err more than others."""
    (points, values), (others, _) = data(count), data(30, seed=2)
    more = noise**2 * (np.arange(count) % 5 == 4)
    values[more > 0] += noise
    process = GaussianProcess()
    process.fit(points, values, *([more] if noise else []))
    mean, deviation = process.predict(others)
    expected = by_the_book(process, points, values, others, more)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(deviation, expected[1], rtol=1e-4)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_fit_makes_the_values_likelier(count):
    points, values = data(count)
    process = GaussianProcess()

    def likelihood():
        correlation = matern(points, points, process._lengths)
        correlation += process._noise * np.eye(count)
        amplitude = values @ np.linalg.inv(correlation) @ values / count
        return -0.5 * count * np.log(amplitude) - 0.5 * np.linalg.slogdet(correlation)[1]

    process.fit(points, values)
    first = likelihood()
    for _ in range(5):
        process.fit(points, values)
    assert likelihood() > first
    assert process._lengths[2] == USUAL_LENGTH, "nothing is said about it"


@pytest.mark.parametrize("count", [FEW, MANY])
def test_belief_is_as_if_the_predictions_had_been_measured(count):
    (points, values), (waiting, _), (others, _) = data(count), data(3, seed=2), data(9, seed=3)
    process = GaussianProcess()
    process.fit(points, values)
    believed, _ = process.predict(waiting)
    before, unsure = process.predict(others)
    amplitude = process._amplitude
    process.believe(waiting)
    mean, deviation = process.predict(others)
    np.testing.assert_allclose(mean, before, rtol=1e-6, atol=1e-9)
    assert np.all(deviation <= unsure)
    everything = np.vstack([points, waiting]), np.concatenate([values, believed])
    expected, spread = by_the_book(process, *everything, others)
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-8)
    total = everything[1] @ np.linalg.solve(
        matern(everything[0], everything[0], process._lengths) + process._noise * np.eye(count + 3),
        everything[1],
    )
    np.testing.assert_allclose(deviation, spread * np.sqrt(amplitude * (count + 3) / total), 1e-4)


def test_improvement_is_expected_where_it_is_likely_or_unknown() -> None:
    mean, deviation = np.array([1.0, 1.0, 2.0]), np.array([0.1, 0.5, 0.1])
    low, unsure, hopeless = expected_improvement(mean, deviation, 1.1)
    assert unsure > low > 0.1 > hopeless >= 0
