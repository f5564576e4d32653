"""Samplers alone: in anybody's study over a space, and by name."""

import pickle
from itertools import product
from random import Random

import numpy as np
import optuna
import pytest
from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from tests.cases import some
from tests.search.samplers.landscape import ask, seconds, study_of
from tests.search.targets import SQUARE, WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.search.errors import BudgetError, SamplerError
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.samplers.base import params_of, point_of, suggest_point
from tilewise.search.samplers.registry import (
    Distinct,
    GridSampler,
    LocalSampler,
    make_sampler,
    over_space,
)
from tilewise.search.samplers.surrogate import SurrogateSampler
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space

SPACE = Space(SQUARE, WIDE)
MODEL = AnalyticalModel.shipped(SPACE)
OURS = [SurrogateSampler, LocalSampler, GridSampler]
ALL = [*OURS, lambda space, seed=0: Distinct(RandomSampler(seed), space, seed)]

optuna.logging.set_verbosity(optuna.logging.ERROR)


def optimized(sampler: BaseSampler, trials: int, space: Space = SPACE, **options: object):
    """A study of its own, as a user would write it, and the points of its trials."""
    study = optuna.create_study(sampler=sampler, **options)

    def objective(trial: optuna.Trial) -> float:
        point = suggest_point(trial, space)
        took = seconds(space, point) if space is SPACE else 1.0
        return took if study.direction is optuna.study.StudyDirection.MINIMIZE else 1 / took

    study.optimize(objective, n_trials=trials)
    return study, [point_of(space, trial.params) for trial in study.trials]


@pytest.mark.parametrize("make", ALL)
def test_in_a_plain_study_every_trial_is_legal_and_new(make) -> None:
    _, points = optimized(make(SPACE, seed=3), 40)
    hashes = [SPACE.legal_hash(point) for point in points]
    assert len(set(hashes)) == 40 and None not in hashes


@pytest.mark.parametrize(
    ("make", "direction"),
    some(product([SurrogateSampler, LocalSampler], ["maximize", "minimize"]), of=3),
)
def test_in_a_plain_study_they_find_what_random_search_does_not(make, direction: str) -> None:
    def best(make, seed: int) -> float:
        _, points = optimized(make(SPACE, seed=seed), 40, direction=direction)
        return min(seconds(SPACE, point) for point in points)

    by_chance = np.median([best(ALL[-1], seed) for seed in range(3)])
    assert np.median([best(make, seed) for seed in range(3)]) < by_chance


@pytest.mark.parametrize("make", ALL)
def test_a_study_over_a_small_space_ends_when_it_is_used_up(make) -> None:
    space = Space(parse_problem("matmul:m=1,n=4,k=4,dtype=f32"), WIDE)
    _, points = optimized(make(space), 1000, space)
    hashes = [space.legal_hash(point) for point in points]
    assert 5 < len(hashes) < 1000
    assert len(set(hashes)) == len(hashes) - 1, "the last one repeats, and ends the study"


@pytest.mark.parametrize("make", ALL)
def test_a_sampler_can_be_kept_and_gone_on_with(make) -> None:
    sampler = make(SPACE, seed=3)
    study, _ = optimized(sampler, 8)
    study.sampler = pickle.loads(pickle.dumps(sampler))
    _, kept = ask(study, SPACE)
    study.tell(len(study.trials) - 1, state=optuna.trial.TrialState.FAIL)
    study.sampler = sampler
    _, own = ask(study, SPACE)
    assert SPACE.legal_hash(kept) is not None and SPACE.legal_hash(own) is not None


@pytest.mark.parametrize("make", OURS)
def test_a_parameter_of_somebody_elses_is_drawn_beside_the_point(make) -> None:
    study = optuna.create_study(sampler=make(SPACE, seed=3))
    extra = []

    def objective(trial: optuna.Trial) -> float:
        extra.append(trial.suggest_float("temperature", 0.0, 1.0))
        return seconds(SPACE, suggest_point(trial, SPACE))

    study.optimize(objective, n_trials=6)
    assert len(set(extra)) == 6


def test_a_study_that_cannot_be_learnt_from_says_why() -> None:
    study, _ = optimized(SurrogateSampler(SPACE), 2)
    other = optuna.create_study(sampler=study.sampler)
    with pytest.raises(SamplerError, match="create another one"):
        ask(other, SPACE)
    several = optuna.create_study(directions=["minimize"] * 2, sampler=SurrogateSampler(SPACE))
    with pytest.raises(SamplerError, match="several objectives"):
        ask(several, SPACE)
    negative = optuna.create_study(sampler=SurrogateSampler(SPACE))
    trial, _ = ask(negative, SPACE)
    negative.tell(trial, -3.0)
    with pytest.raises(SamplerError, match=r"trial 0 of the study has the value -3\.0"):
        ask(negative, SPACE)


class Stubborn(BaseSampler):
    """Always proposes the same point, and notes what it is told."""

    def __init__(self, point: Point | None = None) -> None:
        self.point, self.told = point, []

    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, search_space):
        return params_of(SPACE, self.point) if self.point else {}

    def sample_independent(self, study, trial, param_name, param_distribution):
        return 0

    def after_trial(self, study, trial, state, values):
        self.told.append(trial.params)


def test_what_another_sampler_repeats_is_moved_and_it_is_told_of_what_was_tried() -> None:
    stubborn = Stubborn(SPACE.draw(Random(2)))
    study = study_of(SPACE, [], over_space(stubborn, SPACE))
    points = []
    for _ in range(5):
        trial, point = ask(study, SPACE)
        study.tell(trial, seconds(SPACE, point))
        points.append(point)
    assert points[0] == stubborn.point
    assert len({SPACE.legal_hash(point) for point in points}) == 5
    assert stubborn.told == [params_of(SPACE, point) for point in points]


class Needy(RandomSampler):
    """Takes all that is offered, and nothing else."""

    def __init__(self, space: Space, trials: int, seed: int) -> None:
        super().__init__(seed)
        self.given = (space, trials, seed)


class Wanting(RandomSampler):
    """Wants what nobody can give it."""

    def __init__(self, temperature: float) -> None:
        super().__init__()


HERE = "tests.search.samplers.test_samplers"


def test_a_sampler_by_module_and_class_is_given_what_it_takes() -> None:
    made = make_sampler(f"{HERE}:Needy", MODEL, seed=7, trials=30)
    assert isinstance(made, Distinct) and isinstance(made._sampler, Needy)
    assert made._sampler.given == (SPACE, 30, 7)
    ours = make_sampler("tilewise.search.samplers.registry:LocalSampler", MODEL, seed=7, trials=30)
    assert isinstance(ours, LocalSampler)
    optunas = make_sampler("optuna.samplers:TPESampler", MODEL, seed=7, trials=30)
    assert isinstance(optunas, Distinct) and isinstance(optunas._sampler, TPESampler)


@pytest.mark.parametrize(("name", "message"), [
    ("no_such_module:Class", "cannot be loaded: ModuleNotFoundError: No module named"),
    (f"{HERE}:Nothing", "cannot be loaded: AttributeError"),
    ("math:pi", "is not a subclass of optuna.samplers.BaseSampler"),
    (f"{HERE}:Wanting", "cannot be made: TypeError"),
    ("optuna.samplers:BaseSampler", "cannot be made: TypeError"),
])  # fmt: skip
def test_a_sampler_that_cannot_be_had_says_why(name: str, message: str) -> None:
    with pytest.raises(BudgetError, match=message) as caught:
        make_sampler(name, MODEL, seed=7, trials=30)
    assert caught.value.field == "sampler" and name in str(caught.value)


@pytest.mark.parametrize(("name", "extra"), [("gp", "gp"), ("cmaes", "search")])
def test_a_sampler_whose_package_is_absent_says_what_to_install(name, extra, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(BudgetError, match=rf"install tilewise\[{extra}\]"):
        make_sampler(name, MODEL, seed=7, trials=30)
