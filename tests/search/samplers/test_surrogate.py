"""The default sampler: what it proposes, and what it makes of what it is told."""

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
from tilewise.search.samplers.gaussian_process import Array
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
    prior = {
        point["unroll"]
        for point in prior_points(AnalyticalModel.shipped(space), PRIOR_OF["surrogate"])
    }
    feared = max(set(space.values("unroll")) - prior, key=int)
    told = screened(space, 24, {"unroll": feared})
    best = min(told, key=lambda trial: trial.measurement.time_us)
    assert best.params["unroll"] == feared


def believed(space: Space, points: list[Point], luck: float, paces: tuple[float, float]) -> Array:
    """How much slower than its model each point seems to be, as logarithms.

    Args:
        luck: by how much the first was told too fast.
        paces: of the machine while the first was timed, and while the others were.
    """
    sampler = SurrogateSampler(space, trials=40)
    records = []
    for number, point in enumerate(points):
        met = seconds(space, point) * np.exp(-luck if number == 0 else 0)
        records.append(replace(timed(space, number, point, met), pace=paces[min(number, 1)]))
    ask(rebuilt(space, records, sampler), space)
    mean, _ = sampler._process.predict(sampler._features(points)[0])
    return mean


@pytest.mark.parametrize(("unusual", "usual"), [(1.5, 1.0), (0.7, 1.0), (1.0, 1.5)])
def test_what_was_fast_at_an_unusual_pace_is_believed_less(unusual: float, usual: float) -> None:
    space = Space(SQUARE, WIDE)
    first, *_ = believed(space, beside(space, 3), 0.36, (unusual, usual))
    trusted, *_ = believed(space, beside(space, 3), 0.36, (usual, usual))
    assert first > trusted + 0.05
