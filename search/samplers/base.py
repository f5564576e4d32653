"""What samplers over a space share: a whole point at a time, legal, and new to the study.

The study has what was tried, what it took and what is running, whoever proposed it and whichever
process ran it: samplers keep no record of their own. In Optuna's terms each parameter of a point is
the index of a value in its order. Indices let every sampler see order where there is one: lists of
sizes are no integer range, and categories have no order.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from threading import Lock
from typing import Any

from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from tilewise.search.errors import SamplerError, UsedUpError
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The search space of a study over `space`: one range of indices for each parameter."""
    return {p.name: IntDistribution(0, len(p.values) - 1) for p in space.parameters}


def params_of(space: Space, point: Point) -> dict[str, int]:
    """A point as the parameters of an Optuna trial."""
    return {p.name: p.values.index(point[p.name]) for p in space.parameters}


def point_of(space: Space, params: Mapping[str, Any]) -> Point:
    """The point that the parameters of an Optuna trial mean."""
    return {p.name: p.values[int(params[p.name])] for p in space.parameters}


def suggest_point(trial: Trial, space: Space) -> Point:
    """The point that a study proposes, for an objective of one's own.

        study.optimize(lambda trial: time_us(space.schedule(suggest_point(trial, space))))

    Args:
        trial: as `study.optimize` and `study.ask` give it.
        space: what is searched.
    """
    chosen = {p.name: trial.suggest_int(p.name, 0, len(p.values) - 1) for p in space.parameters}
    return point_of(space, chosen)


PACE = "pace"
"""The user attribute that says how many times longer than usual everything took meanwhile."""
SCHEDULE = "hash"
"""The user attribute that says which schedule a trial tried."""


@dataclass(frozen=True)
class Told:
    """A finished trial.

    Attributes:
        point: what was tried.
        time: what it took, also where it was given up early; None for a failure. In microseconds,
            or whatever unit the study has.
        pace: of the machine meanwhile.
    """

    point: Point
    time: float | None
    pace: float


class History:
    """The trials of one study, each taken in once it has ended.

    Args:
        space: what the study searches.
        refused: hashes of schedules that are not to be tried.

    Attributes:
        running: points that are under way, in the order in which they were asked for.
    """

    def __init__(self, space: Space, refused: Iterable[str] = ()) -> None:
        self.running: list[Point] = []
        self._space = space
        self._distributions = distributions(space)
        self._taken = set(refused)
        self._study: str | None = None
        self._open: list[int] = []
        self._seen = 0

    def is_free(self, point: Point) -> bool:
        """Whether a point means a legal schedule that no trial has, nor is refused."""
        found = self._space.legal_hash(point)
        return found is not None and found not in self._taken

    def take(self, point: Point) -> None:
        """Note that a point is proposed; the study has it a little later."""
        found = self._space.legal_hash(point)
        if found is not None:
            self._taken.add(found)

    def read(self, study: Study, asking: FrozenTrial) -> list[Told]:
        """The trials that have ended since the last call, by number.

        Args:
            study: what to read.
            asking: the trial that a point is wanted for; it is not under way yet.

        Raises:
            SamplerError: the study has several objectives, or values that are no times, or it
                is not the one that was read before.
        """
        self._check(study)
        trials = study.get_trials(deepcopy=False)
        is_speed = study.direction is StudyDirection.MAXIMIZE
        ended, still = [], []
        self.running = []
        for trial in self._new(trials):
            if trial.state in (TrialState.RUNNING, TrialState.WAITING):
                still.append(trial.number)
            point = None if trial.number == asking.number else self._point(trial)
            self._note(trial, point)
            if point is not None and trial.state is TrialState.RUNNING:
                self.running.append(point)
            elif point is not None and trial.state.is_finished():
                ended.append(Told(point, _time(trial, is_speed), trial.user_attrs.get(PACE) or 1.0))
        self._open, self._seen = still, len(trials)
        return ended

    def _check(self, study: Study) -> None:
        self._study = self._study or study.study_name
        if study.study_name != self._study:
            raise SamplerError(
                f"this sampler has learnt from the study {self._study}; make another one for "
                f"{study.study_name}"
            )
        if len(study.directions) != 1:
            raise SamplerError(f"the study {study.study_name} has several objectives; give one")

    def _new(self, trials: list[FrozenTrial]) -> Iterator[FrozenTrial]:
        yield from (trials[number] for number in self._open)
        yield from trials[self._seen :]

    def _point(self, trial: FrozenTrial) -> Point | None:
        """What a trial tries; None where it is of another space, or not chosen yet."""
        known = self._distributions
        if any(trial.distributions.get(name) != known[name] for name in known):
            return None
        return point_of(self._space, trial.params)

    def _note(self, trial: FrozenTrial, point: Point | None) -> None:
        """Note that a trial's schedule is not free any more."""
        if SCHEDULE in trial.user_attrs:
            self._taken.add(trial.user_attrs[SCHEDULE])
        elif point is not None:
            self._taken.add(self._space.schedule(point).hash)


def _time(trial: FrozenTrial, is_speed: bool) -> float | None:
    """What a trial took; of a speed, its inverse."""
    if trial.state is TrialState.FAIL or trial.value is None:
        return None
    if not trial.value > 0:
        raise SamplerError(
            f"trial {trial.number} of the study has the value {trial.value}; give times to "
            "minimise, or speeds to maximise"
        )
    return 1 / trial.value if is_speed else trial.value


class FreeSampler(BaseSampler):
    """A sampler whose points are free: legal, and not tried by any trial of the study.

    All parameters of a point are chosen together. A point that is not free is replaced by one near
    it. The objective asks for the parameters by `tilewise.search.samplers.base.suggest_point`;
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
