"""Base classes of samplers over a space, which propose legal, untried points.

The study knows what was tried and what is running, on any machine, so samplers keep no record of
their own. In Optuna each parameter is the index of a value, which keeps the order of lists of
sizes.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
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
    """Return the search space of a study: a range of indices for each parameter."""
    return {p.name: IntDistribution(0, len(p.values) - 1) for p in space.parameters}


def params_of(space: Space, point: Point) -> dict[str, int]:
    """Return a point as parameters of an Optuna trial."""
    return {p.name: p.values.index(point[p.name]) for p in space.parameters}


def point_of(space: Space, params: Mapping[str, Any]) -> Point:
    """Return the point of an Optuna trial's parameters."""
    return {p.name: p.values[int(params[p.name])] for p in space.parameters}


def suggest_point(trial: Trial, space: Space) -> Point:
    """Return the point that a study proposes, for an objective of one's own.

    For example:

        study.optimize(lambda trial: time_us(space.schedule(suggest_point(trial, space))))
    """
    chosen = {p.name: trial.suggest_int(p.name, 0, len(p.values) - 1) for p in space.parameters}
    return point_of(space, chosen)


SPEED_FACTOR = "speed_factor"
"""The user attribute that says how many times longer than usual everything took meanwhile."""
SCHEDULE = "hash"
"""The user attribute that says which schedule a trial tried."""


@dataclass(frozen=True)
class Reported:
    """A finished trial with its time, in the study's unit, and speed factor; None for a failure."""

    point: Point
    time: float | None
    speed_factor: float


class History:
    """The trials of one study, each read once it has ended.

    `refused` are hashes of schedules that must not be tried; `running` are points under way.
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
        """Return whether a point means a legal schedule that is neither tried nor refused."""
        found = self._space.legal_hash(point)
        return found is not None and found not in self._taken

    def take(self, point: Point) -> None:
        """Record a proposal before the study has it."""
        found = self._space.legal_hash(point)
        if found is not None:
            self._taken.add(found)

    def read(self, study: Study, asking: FrozenTrial) -> list[Reported]:
        """Return the trials that ended since the last call, by number.

        `asking` is the trial that a point is wanted for. Raises SamplerError for another study,
        several objectives, or values that are no times.
        """
        self._check(study)
        trials = study.get_trials(deepcopy=False)
        is_speed = study.direction is StudyDirection.MAXIMIZE
        ended, still = [], []
        self.running = []
        for trial in (*(trials[number] for number in self._open), *trials[self._seen :]):
            if trial.state in (TrialState.RUNNING, TrialState.WAITING):
                still.append(trial.number)
            point = None if trial.number == asking.number else self._point(trial)
            self._note(trial, point)
            if point is not None and trial.state is TrialState.RUNNING:
                self.running.append(point)
            elif point is not None and trial.state.is_finished():
                speed_factor = trial.user_attrs.get(SPEED_FACTOR) or 1.0
                ended.append(Reported(point, _time(trial, is_speed), speed_factor))
        self._open, self._seen = still, len(trials)
        return ended

    def _check(self, study: Study) -> None:
        self._study = self._study or study.study_name
        if study.study_name != self._study:
            raise SamplerError(
                f"this sampler belongs to the study {self._study}; create another one for "
                f"{study.study_name}"
            )
        if len(study.directions) != 1:
            raise SamplerError(f"the study {study.study_name} has several objectives; give one")

    def _point(self, trial: FrozenTrial) -> Point | None:
        """Return the point of a trial; None if it is of another space or not chosen yet."""
        known = self._distributions
        if any(trial.distributions.get(name) != known[name] for name in known):
            return None
        return point_of(self._space, trial.params)

    def _note(self, trial: FrozenTrial, point: Point | None) -> None:
        """Record a trial's schedule as taken."""
        if SCHEDULE in trial.user_attrs:
            self._taken.add(trial.user_attrs[SCHEDULE])
        elif point is not None:
            self._taken.add(self._space.schedule(point).hash)


def _time(trial: FrozenTrial, is_speed: bool) -> float | None:
    """Return a trial's time; of a speed, its inverse."""
    if trial.state is TrialState.FAIL or trial.value is None:
        return None
    if not trial.value > 0:
        raise SamplerError(
            f"trial {trial.number} of the study has the value {trial.value}; give times to "
            "minimise, or speeds to maximise"
        )
    return 1 / trial.value if is_speed else trial.value


class FreeSampler(BaseSampler):
    """A sampler of legal points that no trial of the study has tried.

    All parameters are chosen together; a point that is not free is replaced by a near one. The
    objective reads them by `suggest_point`; its value is a time to minimise or a speed to maximise.
    `sampler` samples parameters outside the space.
    """

    def __init__(
        self, space: Space, seed: int, refused: Iterable[str], sampler: BaseSampler
    ) -> None:
        self._space = space
        self._sampler = sampler
        self._aside = Random(seed)
        self._history = History(space, refused)
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())

    @abstractmethod
    def wanted(self, study: Study, trial: FrozenTrial, reported: list[Reported]) -> Point:
        """Return the next point to try, free or not.

        `reported` are the trials that ended since the last point, whoever proposed them.
        """

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the whole space."""
        return distributions(self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a free point.

        Raises UsedUpError if there is none (`study.optimize` ends instead), SamplerError for an
        unsuitable study.
        """
        with self._lock:  # the threads of a study share its sampler
            point = self.wanted(study, trial, self._history.read(study, trial))
            is_free, aside = self._history.is_free, self._aside
            free = point if is_free(point) else self._space.free_neighbour(point, is_free, aside)
            if free is not None:
                self._history.take(free)
                return params_of(self._space, free)
        try:
            study.stop()
        except RuntimeError:  # no loop of the study runs that could be stopped
            raise UsedUpError("every schedule of the space has been tried") from None
        return params_of(self._space, point)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Sample a parameter outside the space."""
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Draw other numbers than copies of this sampler in other threads."""
        self._aside.seed()
        self._sampler.reseed_rng()


class SpaceSampler(FreeSampler):
    """A sampler that learns from every trial of the study and proposes points."""

    def __init__(self, space: Space, seed: int = 0, refused: Iterable[str] = ()) -> None:
        super().__init__(space, seed, refused, RandomSampler(seed))
        self._random = Random(seed)

    @abstractmethod
    def propose(self) -> Point:
        """Return the next point to try."""

    def learn(self, reported: Reported) -> None:
        """Learn from one finished trial, whoever proposed it."""

    def wanted(self, study: Study, trial: FrozenTrial, reported: list[Reported]) -> Point:
        """Learn from all trials, then propose."""
        for one in reported:
            self.learn(one)
        return self.propose()

    def reseed_rng(self) -> None:
        """Draw other numbers than the copies of this sampler in other threads."""
        super().reseed_rng()
        self._random.seed()
