from dataclasses import replace
from itertools import islice
from random import Random

import numpy as np
import pytest

from kernels.problem import parse_problem
from search.engine.proposals import PRIOR, PRIOR_OF, Proposals
from search.model.analytical import Model
from search.model.prior import prior_points
from search.records import SAMPLERS, TrialRecord, TuneRequest
from search.samplers import features, surrogate
from search.samplers.gaussian_process import Array, GaussianProcess, expected_improvement
from search.samplers.untried import FEW_VALUES
from search.space.points import Point
from search.space.space import Space
from search.timing.measure import summarise
from tests.search.targets import NARROW, SQUARE, WIDE

QUICK = [name for name in SAMPLERS if name != "gp"]


def timed(space: Space, number: int, point, seconds: float) -> TrialRecord:
    return TrialRecord(
        number,
        space.schedule(point),
        point,
        "timed",
        "test",
        measurement=summarise([seconds] * 6, space.problem.flops),
    )


def seconds(space: Space, point) -> float:
    """A smooth landscape whose best is far from where the prior begins."""
    goal = {"tile": "3x6", "unroll": 1, "depth": 96, "cols": 1024, "rows": 16, "pack_a": True}
    apart = sum(
        (a - b) ** 2
        for p in space.parameters
        for a, b in zip(
            p.encode(point[p.name]), p.encode(goal.get(p.name, p.values[0])), strict=True
        )
    )
    return 1e-3 * (1 + apart)


def best_of(sampler: str, seed: int, trials: int, in_flight: int = 1) -> float:
    space = Space(SQUARE, WIDE)
    proposals = Proposals(Model.shipped(space), TuneRequest(sampler=sampler, seed=seed))
    waiting, taken = [], []
    for number in range(trials):
        point, _ = proposals.next()
        waiting.append(timed(space, number, point, seconds(space, point)))
        if len(waiting) == in_flight:
            proposals.learn(waiting.pop(0))
        taken.append(seconds(space, point))
    return min(taken)


@pytest.mark.parametrize("sampler", QUICK)
def test_many_can_be_asked_for_before_the_first_is_learnt(sampler: str) -> None:
    space = Space(SQUARE, WIDE)
    proposals = Proposals(Model.shipped(space), TuneRequest(sampler=sampler))
    first = PRIOR_OF.get(sampler, PRIOR)
    asked = [proposals.next() for _ in range(first + 12)]
    assert len({space.schedule(point) for point, _ in asked}) == len(asked)
    assert [origin for _, origin in asked] == ["prior"] * first + [sampler] * 12
    for number, (point, _) in enumerate(asked):
        proposals.learn(timed(space, number, point, seconds(space, point)))
    point, _ = proposals.next()
    assert space.schedule(point) not in {space.schedule(p) for p, _ in asked}


def screened(space: Space, trials: int, best: dict[str, object]) -> list[TrialRecord]:
    """A search of times that the model explains, but for what `best` is faster by."""

    def seconds(point) -> float:
        is_best = all(point[name] == value for name, value in best.items())
        return np.exp(Model.shipped(space).log_time(point)) * (0.7 if is_best else 1.0)

    proposals = Proposals(Model.shipped(space), TuneRequest(trials=trials))
    told = []
    for number in range(trials):
        point, origin = proposals.next()
        told.append(replace(timed(space, number, point, seconds(point)), origin=origin))
        proposals.learn(told[-1])
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


@pytest.mark.parametrize("turns", [1, 10**9])
def test_a_greedy_turn_changes_one_thing_of_what_was_timed(turns: int, monkeypatch) -> None:
    monkeypatch.setattr(surrogate, "GREEDY", turns)
    space = Space(SQUARE, WIDE)
    told = screened(space, 40, {"tile": "3x6"})
    few = [p.values for p in space.parameters if len(p.values) <= FEW_VALUES]
    screens = PRIOR_OF["surrogate"] + sum(map(len, few))
    points = [trial.params for trial in told]
    beside = [
        any(points[i] in space.neighbours(earlier) for earlier in points[:i])
        for i in range(screens, int(0.75 * len(points)))
    ]
    assert len(beside) > 5
    assert all(beside) == (turns == 1)


def test_what_the_model_fears_is_found_where_it_is_the_best() -> None:
    space = Space(SQUARE, WIDE)
    prior = {point["unroll"] for point in prior_points(Model.shipped(space), PRIOR_OF["surrogate"])}
    feared = max(set(space.values("unroll")) - prior, key=int)
    told = screened(space, 24, {"unroll": feared})
    best = min(told, key=lambda trial: trial.measurement.time_us)
    assert best.params["unroll"] == feared


@pytest.mark.parametrize("in_flight", [1, 3])
def test_models_find_what_random_search_does_not(in_flight: int) -> None:
    def reached(sampler: str) -> float:
        return float(np.median([best_of(sampler, seed, 50, in_flight) for seed in range(3)]))

    by_chance = reached("random")
    assert reached("surrogate") < reached("local") < by_chance


@pytest.mark.parametrize(("staying", "farthest"), [(1, {1, 2}), (surrogate.PROMISING, {3, 4, 5})])
def test_a_climb_goes_on_from_one_proposal_to_the_next(
    staying: int, farthest: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By single changes, without a random candidate and with nothing timed meanwhile.

    Where only the one that is proposed stays, a neighbour's neighbour is the end.
    """
    monkeypatch.setattr(surrogate, "RANDOM", 0)
    monkeypatch.setattr(surrogate, "FRESH", 0)
    monkeypatch.setattr(surrogate, "PROMISING", staying)
    space = Space(SQUARE, WIDE)
    sampler = surrogate.Surrogate(Model.shipped(space), seed=0, trials=40)
    tried = [space.draw(Random(seed)) for seed in range(6)]
    for number, point in enumerate(tried):
        sampler.learn(timed(space, number, point, seconds(space, point)))
    hashes = {space.schedule(point).hash for point in tried}
    away = []
    for _ in range(8):
        point = sampler.propose(
            lambda p: (found := space.legal_hash(p)) is not None and found not in hashes
        )
        hashes.add(space.schedule(point).hash)
        away.append(min(sum(point[name] != other[name] for name in point) for other in tried))
    assert max(away) in farthest


def anything_legal(space: Space):
    return lambda point: space.legal_hash(point) is not None


def test_what_is_under_way_is_believed_until_it_ends_however_it_ends(monkeypatch) -> None:
    space = Space(SQUARE, WIDE)
    sampler = surrogate.Surrogate(Model.shipped(space), seed=0, trials=40)
    for number, point in enumerate(beside(space, 3)[:6]):
        sampler.learn(timed(space, number, point, seconds(space, point)))
    believed: list[int] = []
    monkeypatch.setattr(sampler._process, "believe", lambda points: believed.append(len(points)))
    first = sampler.propose(anything_legal(space))
    assert believed == []
    second = sampler.propose(lambda p: anything_legal(space)(p) and p != first)
    assert believed == [1]
    sampler.learn(timed(space, 6, first, seconds(space, first)))
    failed = TrialRecord(7, space.schedule(second), second, "failed", "test", "crash", "SIGSEGV")
    sampler.learn(failed)
    sampler.propose(anything_legal(space))
    assert believed == [1], "nothing is under way any more"


@pytest.mark.parametrize("trials", [8, 80])
def test_the_last_part_of_a_budget_is_not_for_screening(trials: int, monkeypatch) -> None:
    space, asked = Space(SQUARE, WIDE), []
    *points, other = beside(space, 3)[:7]

    def fastest(_sampler, _points, _is_free) -> Point:
        asked.append("a value nobody has tried, or a neighbour of the best")
        return other

    monkeypatch.setattr(surrogate.Surrogate, "_fastest", fastest)
    sampler = surrogate.Surrogate(Model.shipped(space), seed=0, trials=trials)
    for number, point in enumerate(points):
        sampler.learn(timed(space, number, point, seconds(space, point)))
    sampler.propose(anything_legal(space))
    assert bool(asked) == (trials == 80), "six of eight is where it settles"


def test_the_model_sees_the_newest_and_of_the_older_the_fastest(monkeypatch) -> None:
    monkeypatch.setattr(surrogate, "MOST_DATA", 8)
    space = Space(SQUARE, WIDE)
    sampler = surrogate.Surrogate(Model.shipped(space), seed=0, trials=40)
    taken = [5.0, 1.0, 7.0, 2.0, 8.0, 3.0, 4.0, 6.0, 9.0, 9.1, 9.2, 9.3]
    for number, (point, took) in enumerate(zip(beside(space, 3), taken, strict=False)):
        sampler.learn(timed(space, number, point, took))
    seen = [round(float(np.exp(one.log_time)) / 1e6, 3) for one in sampler._data()]
    assert seen == [1.0, 2.0, 3.0, 4.0, 9.0, 9.1, 9.2, 9.3]


def believed(space: Space, points: list[Point], luck: float, paces: tuple[float, float]) -> Array:
    """How much slower than its model each point seems to be, as logarithms.

    Args:
        luck: by how much the first was told too fast.
        paces: of the machine while the first was timed, and while the others were.
    """
    sampler = surrogate.Surrogate(Model.shipped(space), seed=0, trials=40)
    for number, point in enumerate(points):
        met = seconds(space, point) * np.exp(-luck if number == 0 else 0)
        trial = timed(space, number, point, met)
        sampler.learn(replace(trial, pace=paces[min(number, 1)]))
    sampler.propose(lambda point: space.legal_hash(point) is not None)
    mean, _ = sampler._process.predict(sampler._features(points)[0])
    return mean


def beside(space: Space, seed: int) -> list[Point]:
    """A point drawn at random, and some of its neighbours."""
    middle = space.draw(Random(seed))
    return [middle, *islice(space.neighbours(middle), 15)]


@pytest.mark.parametrize(("unusual", "usual"), [(1.5, 1.0), (0.7, 1.0), (1.0, 1.5)])
def test_what_was_fast_at_an_unusual_pace_is_believed_less(unusual: float, usual: float) -> None:
    space = Space(SQUARE, WIDE)
    first, *_ = believed(space, beside(space, 3), 0.36, (unusual, usual))
    trusted, *_ = believed(space, beside(space, 3), 0.36, (usual, usual))
    assert first > trusted + 0.05


def test_luck_within_what_trials_err_is_not_wholly_believed(monkeypatch) -> None:
    space = Space(SQUARE, WIDE)

    def believed_of(luck: float) -> float:
        lucky, *others = believed(space, beside(space, 7), luck, (1.0, 1.0))
        plain, *same = believed(space, beside(space, 7), 0, (1.0, 1.0))
        return (plain - np.median(same)) - (lucky - np.median(others))

    luck = 2 * surrogate.TRIAL_ERRS
    assert believed_of(luck) < 0.9 * luck
    monkeypatch.setattr(surrogate, "TRIAL_ERRS", 0.0)
    assert believed_of(luck) > 0.95 * luck


def test_a_failed_trial_is_not_proposed_again_and_teaches_nothing() -> None:
    space = Space(SQUARE, WIDE)
    proposals = Proposals(Model.shipped(space), TuneRequest())
    point, origin = proposals.next()
    failed = TrialRecord(0, space.schedule(point), point, "failed", origin, "crash", "SIGSEGV")
    proposals.learn(failed)
    again = Proposals(Model.shipped(space), TuneRequest(), [failed])
    later = [again.next()[0] for _ in range(30)]
    assert space.schedule(point) not in {space.schedule(p) for p in later}


def test_starting_points_follow_the_first_of_the_prior() -> None:
    space = Space(SQUARE, WIDE)
    start = space.draw(Random(5))
    proposals = Proposals(Model.shipped(space), TuneRequest(), starts=[start, start])
    first = [proposals.next() for _ in range(5)]
    origins = [origin for _, origin in first]
    assert origins == ["prior", "prior", "transfer", "prior", "surrogate"]
    assert first[2][0] == start


def test_a_small_space_is_used_up_and_then_over() -> None:
    space = Space(parse_problem("matmul:m=1,n=4,k=4,dtype=f32"), WIDE)
    proposals = Proposals(Model.shipped(space), TuneRequest())
    points = []
    while (proposal := proposals.next()) is not None:
        points.append(proposal[0])
        assert len(points) < 1000
    assert len({space.schedule(p) for p in points}) == len(points)


def test_the_process_learns_a_function_and_knows_what_it_knows() -> None:
    random = np.random.default_rng(3)
    points = random.uniform(0, 1, (40, 3))
    values = np.sin(4 * points[:, 0]) + 0.5 * points[:, 1] ** 2
    process = GaussianProcess()
    for _ in range(6):
        process.fit(points, values)
    fresh = random.uniform(0.1, 0.9, (50, 3))
    mean, deviation = process.predict(fresh)
    truth = np.sin(4 * fresh[:, 0]) + 0.5 * fresh[:, 1] ** 2
    assert np.abs(mean - truth).mean() < 0.1 * np.std(truth)
    _, near = process.predict(points[:1])
    _, far = process.predict(points[:1] + 9)
    assert near < deviation.max() < far


def test_improvement_is_expected_where_it_is_likely_or_unknown() -> None:
    mean, deviation = np.array([1.0, 1.0, 2.0]), np.array([0.1, 0.5, 0.1])
    low, unsure, hopeless = expected_improvement(mean, deviation, 1.1)
    assert unsure > low > 0.1 > hopeless >= 0


def test_the_model_prefers_what_uses_the_registers() -> None:
    space = Space(SQUARE, WIDE)
    point = {p.name: p.values[-1] for p in space.parameters} | {"outer": "cols", "unroll": 2}
    few, many = (Model.shipped(space).log_time(point | {"tile": tile}) for tile in ("8x1", "8x3"))
    assert many < few


def test_features_of_a_point_are_the_same_whenever_it_is_asked_about(monkeypatch):
    monkeypatch.setattr(features, "MOST", 8)
    space, random = Space(SQUARE, NARROW), Random(1)
    points = [space.draw(random) for _ in range(20)]
    seen = features.Features(Model.shipped(space))
    for some in (points[:6], points[2:10], points[12:], points[:6]):
        codes, estimates = seen(some)
        assert codes.tolist() == [list(space.encode(point)) for point in some]
        assert estimates.tolist() == [Model.shipped(space).log_time(point) for point in some]
