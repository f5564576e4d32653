"""Any sampler of Optuna's, made to propose legal schedules, and each once."""

from collections.abc import Iterable, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tilewise.search.samplers.base import FreeSampler
from tilewise.search.samplers.history import Told
from tilewise.search.samplers.points import distributions, point_of
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space


class Distinct(FreeSampler):
    """Asks another sampler for a point, and moves it where it is illegal or was tried.

    The study then has the parameters that were tried in truth, and the other sampler learns from
    them.

    Args:
        sampler: who proposes.
        space: what is searched.
        seed: of the steps aside.
        refused: hashes of schedules that are not to be tried.
    """

    def __init__(
        self, sampler: BaseSampler, space: Space, seed: int = 0, refused: Iterable[str] = ()
    ) -> None:
        super().__init__(space, seed, refused)
        self._sampler = sampler

    def __str__(self) -> str:
        return str(self._sampler)

    def wanted(self, study: Study, trial: FrozenTrial, told: list[Told]) -> Point:
        """The other sampler's point, what it leaves to chance included."""
        inferred = self._sampler.infer_relative_search_space(study, trial)
        params = dict(self._sampler.sample_relative(study, trial, inferred))
        for name, distribution in distributions(self._space).items():
            if distribution.single():
                params[name] = 0
            elif name not in params:
                params[name] = self._sampler.sample_independent(study, trial, name, distribution)
        return point_of(self._space, params)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Of a parameter that is none of the space's."""
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """As the other sampler wants it."""
        self._sampler.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """As the other sampler wants it."""
        self._sampler.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Draw other numbers than the copies of this sampler in other threads."""
        super().reseed_rng()
        self._sampler.reseed_rng()
