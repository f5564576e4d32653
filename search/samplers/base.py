"""What samplers over a space share: a whole point at a time, legal, and new to the study."""

from abc import abstractmethod
from collections.abc import Iterable
from random import Random
from threading import Lock
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tilewise.search.errors import UsedUpError
from tilewise.search.samplers.history import History, Told
from tilewise.search.samplers.points import distributions, params_of
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space


class FreeSampler(BaseSampler):
    """A sampler whose points are free: legal, and not tried by any trial of the study.

    All parameters of a point are chosen together. A point that is not free is replaced by one near
    it. The objective asks for the parameters by `tilewise.search.samplers.points.suggest_point`;
    its value is a time to minimise, or a speed to maximise.

    Args:
        space: what is searched.
        seed: of the steps from a point that is not free.
        refused: hashes of schedules that are not to be tried.
    """

    def __init__(self, space: Space, seed: int = 0, refused: Iterable[str] = ()) -> None:
        self._space = space
        self._aside = Random(seed)
        self._history = History(space, refused)
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())

    @abstractmethod
    def wanted(self, study: Study, trial: FrozenTrial, told: list[Told]) -> Point:
        """The point that should be tried next, free or not.

        Args:
            study: as Optuna gives it.
            trial: the one that the point is for.
            told: trials that have ended since the last point, whoever proposed them.
        """

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The whole space, from the first trial on."""
        return distributions(self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A free point.

        Raises:
            UsedUpError: none was found; in `study.optimize` the study ends after this trial.
            SamplerError: the study has several objectives, or values that are no times.
        """
        with self._lock:  # the threads of a study share its sampler
            point = self.wanted(study, trial, self._history.read(study, trial))
            free: Point | None = point
            if not self._history.is_free(point):
                is_free = self._history.is_free
                free = self._space.free_point_beside(point, is_free, self._aside)
            if free is not None:
                self._history.take(free)
        if free is None:
            _end(study)
        return params_of(self._space, free or point)

    def reseed_rng(self) -> None:
        """Draw other numbers than the copies of this sampler in other threads."""
        self._aside.seed()


class SpaceSampler(FreeSampler):
    """A sampler of ours: it learns from every trial of the study, and proposes points.

    Args:
        space: what is searched.
        seed: of what is drawn.
        refused: hashes of schedules that are not to be tried.
    """

    def __init__(self, space: Space, seed: int = 0, refused: Iterable[str] = ()) -> None:
        super().__init__(space, seed, refused)
        self._random = Random(seed)
        self._independent = RandomSampler(seed)

    @abstractmethod
    def propose(self) -> Point:
        """The next point to try, by all that was learnt."""

    def learn(self, told: Told) -> None:
        """Take in one finished trial, whoever proposed it."""

    def wanted(self, study: Study, trial: FrozenTrial, told: list[Told]) -> Point:
        """What `propose` says, once it knows of every trial."""
        for one in told:
            self.learn(one)
        return self.propose()

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """A random value of a parameter that is none of the space's."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Draw other numbers than the copies of this sampler in other threads."""
        super().reseed_rng()
        self._random.seed()
        self._independent.reseed_rng()


def _end(study: Study) -> None:
    """End a study over a space that is used up; UsedUpError where only the caller can."""
    try:
        study.stop()
    except RuntimeError:  # it is asked and told, and no loop runs that could be stopped
        raise UsedUpError("every schedule of the space has had its trial") from None
