"""Replay a search on schedules that were timed before.

`RecordedSpace` has the recorded schedules alone, so that every point has a time. A proposal that
was not recorded is replaced by the nearest recorded one that is free, by the distance of encodings.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.mlir.tuning_spec.config import AnySchedule
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target.costs import Costs
from tilewise.search.engine.study import PRIOR, Proposal, SearchStudy
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.recording import Recording
from tilewise.search.records import TrialRecord, TuneRequest
from tilewise.search.space.algorithms import ALGORITHM
from tilewise.search.space.parameters import completed
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space
from tilewise.search.timing.samples import summarise


@dataclass(frozen=True)
class RecordedSpace(Space):
    """The recorded schedules of a problem as a space."""

    recording: Recording = field(kw_only=True, compare=False, repr=False)

    @classmethod
    def of(cls, recording: Recording) -> "RecordedSpace":
        """Return the space of a recording.

        A recording older than fast algorithms has the direct method alone, one older than fused
        pixels has lines of them.
        """
        problem = recording.problem
        if ALGORITHM not in recording.parameters:
            problem = parse_problem({**problem.to_json(), "accuracy": "strict"})
        has_lines = "image_rows" in recording.parameters
        return cls(problem, recording.target, has_lines, recording=recording)

    @cached_property
    def trials(self) -> dict[str, TrialRecord]:
        """Trials by schedule hash whose points still exist; newer parameters are default."""
        completions = ((t, completed(self.parameters, t.params)) for t in self.recording.trials)
        return {
            t.schedule.hash: replace(t, params=point)
            for t, point in completions
            if self.holds(point)
        }

    @cached_property
    def _schedules(self) -> dict[tuple[object, ...], AnySchedule]:
        return {self._key(t.params): t.schedule for t in self.trials.values()}

    @cached_property
    def points(self) -> list[Point]:
        """The recorded points."""
        return [t.params for t in self.trials.values()]

    def prior(self, costs: Costs) -> list[Point]:
        """Return the recorded points nearest to the prior of the model with `costs`."""
        if costs not in self._priors:
            own = AnalyticalModel(Space(self.problem, self.target, self.has_scripts), costs)
            self._priors[costs] = [self.nearest(point) for point in prior_points(own, PRIOR)]
        return self._priors[costs]

    @cached_property
    def _priors(self) -> dict[Costs, list[Point]]:
        return {}

    @cached_property
    def _encoded(self) -> NDArray[np.float64]:
        return np.array([self.encode(point) for point in self.points])

    def schedule(self, point: Point) -> AnySchedule:
        """Return the recorded schedule of a point, else that of the present space."""
        key = self._key(point)
        found = self._schedules.get(key)
        if found is None:
            found = self._schedules[key] = super().schedule(point)
        return found

    def why_illegal(self, schedule: AnySchedule, operand: str = "") -> str | None:
        """Refuse what was not recorded."""
        return None if schedule.hash in self.trials else "it was not recorded"

    def draw(self, random: Random) -> Point:
        """Return a random recorded point."""
        return random.choice(self.points)

    def free_neighbour(
        self, point: Point, is_free: Callable[[Point], bool], random: Random
    ) -> Point | None:
        """Return the nearest recorded point that is free."""
        return next((near for near in self._by_distance(point) if is_free(near)), None)

    def nearest(self, point: Point) -> Point:
        """Return the recorded point of the same schedule, else the nearest."""
        found = self.trials.get(self.schedule(point).hash)
        return found.params if found else next(self._by_distance(point))

    def _by_distance(self, point: Point) -> Iterator[Point]:
        distances = np.sum((self._encoded - np.array(self.encode(point))) ** 2, axis=1)
        return (self.points[i] for i in np.argsort(distances, kind="stable"))

    def _key(self, point: Point) -> tuple[object, ...]:
        return tuple(point[p.name] for p in self.parameters)


@dataclass(frozen=True)
class Replayed:
    """One replayed search: its trials and their best known times."""

    trials: tuple[TrialRecord, ...]
    times_us: tuple[float, ...]

    def trials_to(self, limit_us: float) -> int | None:
        """Return how many trials it took to reach a time; None if none did."""
        return next((i for i, t in enumerate(self.times_us, 1) if t <= limit_us), None)

    def slow_share(self, limit_us: float) -> float:
        """Return the share of trials slower than `limit_us`."""
        return sum(t > limit_us for t in self.times_us) / len(self.times_us)


def replay(
    space: RecordedSpace,
    request: TuneRequest,
    in_flight: int = 1,
    until_us: float = 0.0,
    starts: Sequence[Point] = (),
    costs: Costs | None = None,
) -> Replayed:
    """Search as `tilewise.search.engine.tune` does, with recorded answers.

    `in_flight` proposals are open at once, and the search ends at a trial of `until_us`. Points of
    near problems, `starts`, are replaced by the nearest recorded ones. `costs` default to the
    target's.
    """
    model = AnalyticalModel(space, costs or space.target.core.costs)
    recorded = [space.nearest(point) for point in starts]
    study = SearchStudy(model, request, (), recorded, prior=space.prior(model.costs))
    trials: list[TrialRecord] = []
    times: list[float] = []
    for answer in _answers(space, study, request.trials, in_flight):
        trials.append(answer)
        times.append(space.recording.time_us(answer))
        if times[-1] <= until_us:
            break
    return Replayed(tuple(trials), tuple(times))


def _answers(
    space: RecordedSpace, study: SearchStudy, most: int, in_flight: int
) -> Iterator[TrialRecord]:
    waiting: deque[tuple[Proposal, TrialRecord]] = deque()
    asked = 0
    while True:
        while asked < most and len(waiting) < in_flight:
            proposal = study.ask()
            if proposal is None:
                most = asked
                break
            point, origin = proposal.point, proposal.origin
            recorded = space.trials[space.schedule(point).hash]
            trial = replace(recorded, number=asked, params=point, origin=origin)
            waiting.append((proposal, trial))
            asked += 1
        if not waiting:
            return
        proposal, trial = waiting.popleft()
        study.tell(proposal, _as_timed(space, trial))
        yield trial


def _as_timed(space: RecordedSpace, trial: TrialRecord) -> TrialRecord:
    """Return the trial with its best known time and no speed factor."""
    again = space.recording.again.get(trial.schedule.hash)
    if again is None:
        return replace(trial, speed_factor=None)
    return replace(trial, measurement=summarise(again, space.problem.flops), speed_factor=None)
