"""What a study has made of a space, read as it grows.

Our samplers keep no books of their own: what was tried, what it took and what is under way
stands in the study, whoever proposed it, and whichever process ran it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tilewise.search.errors import SamplerError
from tilewise.search.samplers.points import distributions, point_of
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space

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
