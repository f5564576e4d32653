"""Train a predictor on timed schedules, and evaluate it on problems that it was not trained on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.problem import Problem
from tilewise.kernels.target import Target
from tilewise.search.errors import PredictorError
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.predictor.candidates import Candidate, candidate
from tilewise.search.predictor.features import features
from tilewise.search.predictor.predictor import Errors, Predictor
from tilewise.search.predictor.trees import Trees
from tilewise.search.records import Solved, TimedPoint
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space

Array = NDArray[np.float64]

HALF_WEIGHT_SLOWDOWN = 0.15  # a schedule slower than the best by this share counts half
MOST_ERROR = 2.0  # of the logarithm of a modelled time; beyond it a schedule is just slow
FOLDS = 8  # of problems
LEAST_POINTS = 8  # of a space; fewer cannot tell what is common to all


@dataclass(frozen=True)
class TimedSpace:
    """Timed points of a problem on a target; times in us."""

    name: str
    problem: Problem
    target: Target
    timed: Sequence[TimedPoint]

    @cached_property
    def model(self) -> AnalyticalModel:
        """The analytical model of the space."""
        return AnalyticalModel.shipped(Space(self.problem, self.target))

    @cached_property
    def known(self) -> list[tuple[Candidate, float]]:
        """The points that the present space has, with their times."""
        stored = self.model.space.stored(self.timed)
        return [(candidate(self.model, point), time) for point, time in stored]

    @cached_property
    def times(self) -> Array:
        """The times of `known`."""
        return np.array([time for _, time in self.known])

    @cached_property
    def modelled(self) -> Array:
        """The modelled logarithms of the times of `known`."""
        return np.array([one.log_cycles for one, _ in self.known])

    @cached_property
    def rows(self) -> Array:
        """The features of `known`."""
        return features(self.model.space, [one for one, _ in self.known])

    @cached_property
    def weights(self) -> Array:
        """How much each time counts; the sum is 1."""
        weights = 1 / (1 + (self.times / self.times.min() - 1) / HALF_WEIGHT_SLOWDOWN)
        found: Array = weights / weights.sum()
        return found

    @cached_property
    def errors(self) -> Array:
        """The model's errors, as logarithms; the level is part of them."""
        found: Array = np.log(self.times) - self.modelled
        return found

    @cached_property
    def solved(self) -> Solved:
        """The fastest point, as a search has found it."""
        fastest = int(np.argmin(self.times))
        point = self.known[fastest][0].point
        return Solved(self.problem, self.target.canonical, ((point, float(self.times[fastest])),))

    def share(self, place: int) -> float:
        """Return the speed of a point as a share of the best."""
        return float(self.times.min() / self.times[place])

    def nearest(self, point: Point) -> int:
        """Return the place of a point's schedule, else that of the nearest known point."""
        schedule = self.model.space.schedule
        wanted = schedule(point).hash
        for place, (one, _) in enumerate(self.known):
            if schedule(one.point).hash == wanted:
                return place
        encode = self.model.space.encode
        codes = np.array([encode(one.point) for one, _ in self.known])
        return int(np.argmin(np.sum((codes - np.array(encode(point))) ** 2, axis=1)))


class Shares(NamedTuple):
    """Speeds over the best of a space by a predictor that was trained without the space.

    Attributes:
        predicted: of the predicted schedule, or of the timed one nearest to it.
        ranked: of that of all timed schedules which is believed the fastest.
        error: logarithm of the actual over the expected time of the ranked one.
    """

    predicted: float
    ranked: float
    error: float


class Evaluated(NamedTuple):
    """The accuracy of predictions for a space.

    Attributes:
        name: of the space.
        problem: by a predictor that was trained without its problem, on any processor.
        processor: by one that was trained without its processor; None if there is no other.
        prior: share of the first schedule that a search tries, or of the timed one nearest to it.
        model: share of the timed schedule that the analytical model believes the fastest.
    """

    name: str
    problem: Shares
    processor: Shares | None
    prior: float
    model: float


def usable(spaces: Sequence[TimedSpace]) -> list[TimedSpace]:
    """Return the spaces with enough points; raise PredictorError if they have one problem."""
    known = [space for space in spaces if len(space.known) >= LEAST_POINTS]
    if len({space.problem.canonical for space in known}) < 2:
        raise PredictorError(
            f"{len(known)} spaces with {LEAST_POINTS} timed schedules that still exist; "
            "give spaces of at least 2 problems"
        )
    return known


def evaluate(spaces: Sequence[TimedSpace]) -> list[Evaluated]:
    """Return how well held-out spaces are predicted."""
    problems = sorted({space.problem.canonical for space in spaces})
    fold = {text: number % FOLDS for number, text in enumerate(problems)}
    of_problems = dict(_held_out(spaces, lambda space: fold[space.problem.canonical]))
    of_processors = dict(_held_out(spaces, lambda space: space.target.cpu))
    return [
        Evaluated(
            space.name,
            of_problems[id(space)],
            of_processors.get(id(space)),
            space.share(space.nearest(prior_points(space.model, 1)[0])),
            space.share(int(np.argmin(space.modelled))),
        )
        for space in spaces
    ]


def _held_out(
    spaces: Sequence[TimedSpace], group: Callable[[TimedSpace], object]
) -> Iterator[tuple[int, Shares]]:
    """Yield the identity of each space, and its shares by a predictor trained on other groups."""
    for left_out in dict.fromkeys(map(group, spaces)):
        others = [space for space in spaces if group(space) != left_out]
        if others:
            predictor = _fitted(others, Errors(0, 0, 0), Errors(0, 0, 0))
            left = [space for space in spaces if group(space) == left_out]
            yield from ((id(space), _shares(predictor, space, others)) for space in left)


def _shares(predictor: Predictor, space: TimedSpace, others: Sequence[TimedSpace]) -> Shares:
    target = space.target.canonical
    near = [other.solved for other in others if other.target.canonical == target]
    (chosen,) = predictor.predict([space.problem], space.target, near)
    if chosen is None:
        raise PredictorError(f"no candidate of {space.name} is legal; leave this space out")
    scores = space.modelled + predictor.trees.predict(space.rows)
    ranked = int(np.argmin(scores))
    expected = scores[ranked] + predictor.level(space.target)[0]
    return Shares(
        space.share(space.nearest(chosen.point)),
        space.share(ranked),
        float(np.log(space.times[ranked]) - expected),
    )


def train(spaces: Sequence[TimedSpace], evaluated: Sequence[Evaluated]) -> Predictor:
    """Return a predictor of all spaces, with the errors of their evaluation."""
    own = [one.problem.error for one in evaluated]
    elsewhere = [one.processor.error for one in evaluated if one.processor is not None]
    return _fitted(spaces, _errors(own), _errors(elsewhere or own))


def _errors(errors: Sequence[float]) -> Errors:
    return Errors(*np.percentile(errors, (5, 50, 95)).tolist())


def _fitted(spaces: Sequence[TimedSpace], of_problems: Errors, of_processors: Errors) -> Predictor:
    found: dict[str, list[float]] = {}
    for space in spaces:
        found.setdefault(space.target.canonical, []).append(float(space.weights @ space.errors))
    levels = {name: float(np.mean(errors)) for name, errors in found.items()}
    errors = [space.errors - levels[space.target.canonical] for space in spaces]
    trees = Trees.fit(
        np.concatenate([space.rows for space in spaces]),
        np.clip(np.concatenate(errors), -MOST_ERROR, MOST_ERROR),
        np.concatenate([space.weights for space in spaces]),
    )
    targets = {space.target.canonical: space.target for space in spaces}
    return Predictor(trees, levels, targets, of_problems, of_processors)
