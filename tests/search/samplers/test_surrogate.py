"""The default sampler and its Gaussian process."""

from dataclasses import replace

import numpy as np
import pytest

from tests.search.samplers.landscape import ask, beside, seconds, timed
from tests.search.targets import SQUARE, WIDE
from tilewise.search.engine.study import PRIOR_OF, SearchStudy, rebuilt
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.records import TrialRecord, TuneRequest
from tilewise.search.samplers import surrogate
from tilewise.search.samplers.gaussian_process import (
    BLOCK,
    USUAL_LENGTH,
    Array,
    GaussianProcess,
    expected_improvement,
)
from tilewise.search.samplers.surrogate import FEW_VALUES, SurrogateSampler
from tilewise.search.space.points import Point, TilePoint
from tilewise.search.space.space import Space


def screened(space: Space, trials: int, best: dict[str, object]) -> list[TrialRecord]:
    """A search of times that the model explains, but for what `best` is faster by."""

    def seconds(point: Point) -> float:
        is_best = all(point[name] == value for name, value in best.items())
        return np.exp(AnalyticalModel.shipped(space).log_time(point)) * (0.7 if is_best else 1.0)

    search = SearchStudy(AnalyticalModel.shipped(space), TuneRequest(trials=trials))
    told = []
    for number in range(trials):
        proposal = search.ask()
        record = timed(space, number, proposal.point, seconds(proposal.point))
        told.append(replace(record, origin=proposal.origin))
        search.tell(proposal, told[-1])
    return told


def test_each_value_of_few_has_a_trial_soon_whatever_the_model_says_of_it() -> None:
    space = Space(SQUARE, WIDE)
    few = {p.name: p.values for p in space.parameters if len(p.values) <= FEW_VALUES}
    told = screened(space, 24, {})
    first = PRIOR_OF["surrogate"]
    untried = sum(len(set(v) - {t.params[n] for t in told[:first]}) for n, v in few.items())
    assert {"unroll", "outer", "pack_a", "pack_b", "prefetch"} <= few.keys()
    assert untried >= 4  # the prior alone is of one mind
    for name, values in few.items():
        assert {t.params[name] for t in told[: first + untried]} == set(values)


def test_greedy_turns_are_beside_the_fastest(monkeypatch) -> None:
    monkeypatch.setattr(surrogate, "GREEDY", 1)
    space = Space(SQUARE, WIDE)
    told = screened(space, 40, {"tile": TilePoint(3, 6)})
    few = [p.values for p in space.parameters if len(p.values) <= FEW_VALUES]
    beside = []
    for number in range(PRIOR_OF["surrogate"] + sum(map(len, few)), 30):
        fastest = sorted(told[:number], key=lambda t: t.measurement.time_us)[: surrogate.CENTRES]
        beside.append(any(told[number].params in space.neighbours(t.params) for t in fastest))
    assert len(beside) > 5 and sum(beside) > 0.7 * len(beside)


def test_what_the_model_fears_is_found_where_it_is_the_best() -> None:
    space = Space(SQUARE, WIDE)
    first = prior_points(AnalyticalModel.shipped(space), PRIOR_OF["surrogate"])
    prior = {point["unroll"] for point in first}
    feared = max(set(space.values("unroll")) - prior, key=int)
    told = screened(space, 24, {"unroll": feared})
    best = min(told, key=lambda trial: trial.measurement.time_us)
    assert best.params["unroll"] == feared


def believed(space: Space, points: list[Point], luck: float, factors: tuple[float, float]) -> Array:
    """How much slower than its model each point seems to be, as logarithms.

    Args:
        luck: by how much the first was told too fast.
        factors: of the machine while the first was timed, and while the others were.
    """
    sampler = SurrogateSampler(space, trials=40)
    records = []
    for number, point in enumerate(points):
        met = seconds(space, point) * np.exp(-luck if number == 0 else 0)
        trial = timed(space, number, point, met)
        records.append(replace(trial, speed_factor=factors[min(number, 1)]))
    ask(rebuilt(space, records, sampler), space)
    mean, _ = sampler._process.predict(sampler._features(points)[0])
    return mean


@pytest.mark.parametrize(("unusual", "usual"), [(1.5, 1.0), (0.7, 1.0), (1.0, 1.5)])
def test_what_was_fast_at_an_unusual_pace_is_believed_less(monkeypatch, unusual, usual) -> None:
    monkeypatch.setattr(surrogate, "MOST_POINTS", 2)  # fewer than are looked at
    space = Space(SQUARE, WIDE)
    first, *_ = believed(space, beside(space, 3), 0.36, (unusual, usual))
    trusted, *_ = believed(space, beside(space, 3), 0.36, (usual, usual))
    assert first > trusted + 0.05


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
    correlation = matern(everything[0], everything[0], process._lengths)
    correlation += process._noise * np.eye(count + 3)
    total = everything[1] @ np.linalg.solve(correlation, everything[1])
    np.testing.assert_allclose(deviation, spread * np.sqrt(amplitude * (count + 3) / total), 1e-4)


def test_improvement_is_expected_where_it_is_likely_or_unknown() -> None:
    mean, deviation = np.array([1.0, 1.0, 2.0]), np.array([0.1, 0.5, 0.1])
    low, unsure, hopeless = expected_improvement(mean, deviation, 1.1)
    assert unsure > low > 0.1 > hopeless >= 0
