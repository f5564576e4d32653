"""A search as an Optuna study: what is enqueued, asked and told, and what a store rebuilds."""

from dataclasses import replace
from random import Random

import optuna
import pytest
from optuna.trial import TrialState

from tests.cases import some
from tests.search.samplers.landscape import beside, seconds, timed
from tests.search.targets import SQUARE, WIDE
from tilewise.search.engine import study
from tilewise.search.engine.study import ORIGIN, PRIOR, TRANSFER, Proposal, SearchStudy, rebuilt
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.records import SAMPLERS, TrialRecord, TuneRequest
from tilewise.search.samplers.base import SCHEDULE
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space
from tilewise.search.timing.samples import summarise

QUICK = [name for name in SAMPLERS if name != "gp"]
SPACE = Space(SQUARE, WIDE)
MODEL = AnalyticalModel.shipped(SPACE)


def tell_timed(search: SearchStudy, proposal: Proposal, number: int) -> TrialRecord:
    record = timed(SPACE, number, proposal.point, seconds(SPACE, proposal.point))
    record = replace(record, origin=proposal.origin)
    search.tell(proposal, record)
    return record


@pytest.mark.parametrize("sampler", some(QUICK, of=2))
def test_many_can_be_asked_for_before_the_first_is_told(sampler: str) -> None:
    search = SearchStudy(MODEL, TuneRequest(sampler=sampler))
    first = study.PRIOR_OF.get(sampler, PRIOR)
    asked = [search.ask() for _ in range(first + 12)]
    hashes = {SPACE.schedule(proposal.point).hash for proposal in asked}
    assert len(hashes) == len(asked)
    assert [proposal.origin for proposal in asked] == ["prior"] * first + [sampler] * 12
    assert all(trial.state is TrialState.RUNNING for trial in search.study.trials)
    for number, proposal in enumerate(asked):
        tell_timed(search, proposal, number)
    assert SPACE.schedule(search.ask().point).hash not in hashes


def test_what_is_offered_is_enqueued_with_its_origin_before_the_sampler_is_asked() -> None:
    start = beside(SPACE, 5)[0]
    search = SearchStudy(MODEL, TuneRequest(), starts=[start, start])
    waiting = search.study.get_trials(states=(TrialState.WAITING,))
    origins = ["prior", "prior", TRANSFER, "prior", "prior"]
    assert [trial.user_attrs[ORIGIN] for trial in waiting] == origins
    asked = [search.ask() for _ in range(6)]
    assert [proposal.origin for proposal in asked] == [*origins, "surrogate"]
    assert asked[2].point == start


def test_no_more_is_enqueued_than_the_budget_has_trials() -> None:
    search = SearchStudy(MODEL, TuneRequest(trials=3, sampler="local"))
    assert len(search.study.trials) == 3
    stored = ended(search)
    resumed = SearchStudy(MODEL, TuneRequest(trials=5, sampler="local"), stored)
    waiting = [one for one in resumed.study.trials if one.state is TrialState.WAITING]
    assert len(waiting) == 2, "three of five are stored"


def ended(search: SearchStudy) -> list[TrialRecord]:
    """A trial of each state, told."""
    asked = [search.ask() for _ in range(3)]
    first = replace(timed(SPACE, 0, asked[0].point, 2e-3), samples=(4e-3,) * 6, speed_factor=2.0)
    samples = (9e-3, 7e-3, 8e-3)
    seen = summarise(list(samples), SQUARE.flops)
    second = timed(SPACE, 1, asked[1].point, 1.0)
    second = replace(second, state="pruned", measurement=seen, samples=samples)
    point = asked[2].point
    third = TrialRecord(2, SPACE.schedule(point), point, "failed", "", "crash", "SIGSEGV")
    told = []
    for proposal, record in zip(asked, (first, second, third), strict=True):
        told.append(replace(record, origin=proposal.origin))
        search.tell(proposal, told[-1])
    return told


def test_a_trial_is_told_by_its_state_with_what_was_seen_of_it() -> None:
    search = SearchStudy(MODEL, TuneRequest())
    ended(search)
    complete, pruned, failed = search.study.get_trials(deepcopy=False)[:3]
    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    assert (complete.state, pruned.state, failed.state) == states
    assert complete.value == pytest.approx(2e3) and complete.user_attrs["speed_factor"] == 2.0
    assert complete.intermediate_values == pytest.approx({1: 2e3, 2: 2e3, 4: 2e3, 6: 2e3})
    assert pruned.intermediate_values == pytest.approx({1: 9e3, 2: 8e3, 3: 8e3})
    assert pruned.value == pytest.approx(8e3)
    assert failed.user_attrs["failure"] == "crash" and failed.user_attrs["message"] == "SIGSEGV"


def told_of(trial: optuna.trial.FrozenTrial) -> tuple[object, ...]:
    values = (trial.params, trial.distributions, trial.value, trial.intermediate_values)
    return trial.number, trial.state, *values, trial.user_attrs


def test_the_study_that_a_store_rebuilds_is_the_study_as_it_was() -> None:
    search = SearchStudy(MODEL, TuneRequest())
    told = ended(search)
    for number in (3, 4):
        told.append(tell_timed(search, search.ask(), number))
    finished = [trial for trial in search.study.trials if trial.state.is_finished()]
    again = rebuilt(SPACE, told)
    assert [told_of(trial) for trial in again.trials] == [told_of(trial) for trial in finished]
    assert again.best_params == search.study.best_params
    assert again.user_attrs == search.study.user_attrs


def test_a_trial_of_an_earlier_space_is_in_the_study_and_is_not_tried_again() -> None:
    other = timed(SPACE, 0, beside(SPACE, 5)[0], 1e-3)
    stale = replace(other, params={"tile": TilePoint(99, 99)})
    search = SearchStudy(MODEL, TuneRequest(), [stale], [other.params])
    first = search.study.trials[0]
    assert first.params == {} and first.user_attrs[SCHEDULE] == other.schedule.hash
    assert other.params not in [search.ask().point for _ in range(30)]


def test_a_space_of_one_schedule_is_over_after_it() -> None:
    space = Space(SQUARE, WIDE)
    only = space.draw(Random(1))
    vars(space)["parameters"] = tuple(replace(p, values=(only[p.name],)) for p in space.parameters)
    search = SearchStudy(AnalyticalModel.shipped(space), TuneRequest(), prior=[])
    proposal = search.ask()
    assert proposal is not None and proposal.point == only
    assert search.ask() is None


@pytest.mark.parametrize("stored", [0, 3])
def test_a_resumed_sampler_draws_other_numbers(stored: int) -> None:
    told = [timed(SPACE, i, point, 1.0) for i, point in enumerate(beside(SPACE, 4)[:stored])]
    request = TuneRequest(seed=5, sampler="random")
    points = [SearchStudy(MODEL, request, told, prior=[]).ask().point for _ in range(2)]
    fresh = SearchStudy(MODEL, request, prior=[]).ask().point
    assert points[0] == points[1]
    assert (points[0] == fresh) == (stored == 0)
