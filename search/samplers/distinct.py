"""Any sampler of Optuna's, made to propose legal schedules, and each once."""

from collections.abc import Iterable, Sequence
from random import Random
from threading import Lock
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from search.samplers.base import end, freed
from search.samplers.history import History
from search.samplers.points import distributions, params_of, point_of
from search.space.space import Space


class Distinct(BaseSampler):
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
        self._sampler = sampler
        self._space = space
        self._aside = Random(seed)
        self._history = History(space, refused)
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())

    def __str__(self) -> str:
        return str(self._sampler)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The whole space: what the other sampler leaves to chance has to be known as well."""
        return distributions(self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The other sampler's point, or a free one near it.

        Raises:
            UsedUpError: none was found; in `study.optimize` the study ends after this trial.
        """
        inferred = self._sampler.infer_relative_search_space(study, trial)
        params = dict(self._sampler.sample_relative(study, trial, inferred))
        for name, distribution in search_space.items():
            if name not in params and not distribution.single():
                params[name] = self._sampler.sample_independent(study, trial, name, distribution)
        point = point_of(self._space, dict.fromkeys(search_space, 0) | params)
        with self._lock:
            self._history.read(study, trial)
            free = freed(self._space, self._history, point, self._aside)
        if free is None:
            end(study)
        return params_of(self._space, free or point)

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
        self._sampler.reseed_rng()
        self._aside.seed()
