"""What our samplers share: a whole point at a time, legal, and new to the study."""

from abc import abstractmethod
from collections.abc import Iterable
from random import Random
from threading import Lock
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from search.errors import UsedUpError
from search.samplers.history import History, Told
from search.samplers.points import distributions, params_of
from search.space.points import Point
from search.space.space import Space


class SpaceSampler(BaseSampler):
    """A sampler of points of one space, for any study over it.

    All parameters of a point are chosen together, by `propose`. A point whose schedule the caches
    cannot take, or that a trial of the study has, is replaced by one near it. The objective asks
    for the parameters by `search.samplers.points.suggest_point`; its value is a time to minimise,
    or a speed to maximise.

    Args:
        space: what is searched.
        seed: of what is drawn.
        refused: hashes of schedules that are not to be tried.
    """

    def __init__(self, space: Space, seed: int = 0, refused: Iterable[str] = ()) -> None:
        self._space = space
        self._random = Random(seed)
        self._aside = Random(seed)
        self._history = History(space, refused)
        self._independent = RandomSampler(seed)
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())

    @abstractmethod
    def propose(self) -> Point:
        """The next point to try, by all that was learnt."""

    def learn(self, told: Told) -> None:
        """Take in one finished trial, whoever proposed it."""

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
            for told in self._history.read(study, trial):
                self.learn(told)
            point = self.propose()
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
        """A random value of a parameter that is none of the space's."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Draw other numbers than the copies of this sampler in other threads."""
        self._random.seed()
        self._aside.seed()
        self._independent.reseed_rng()


def freed(space: Space, history: History, point: Point, random: Random) -> Point | None:
    """`point`, or in place of one that is not free a free one near it; None if there is none.

    What is returned is not free any more.
    """
    free: Point | None = point
    if not history.is_free(point):
        free = space.free_point_beside(point, history.is_free, random)
    if free is not None:
        history.take(free)
    return free


def end(study: Study) -> None:
    """End a study over a space that is used up; UsedUpError where only the caller can."""
    try:
        study.stop()
    except RuntimeError:  # it is asked and told, and no loop runs that could be stopped
        raise UsedUpError("every schedule of the space has had its trial") from None
