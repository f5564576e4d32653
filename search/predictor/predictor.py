"""The predictor: the analytical model, corrected by trees that trials of other problems taught.

What a cycle of the model takes on a processor is its level, and the trees correct the modelled time
of a point. The expected time is moved by the median error of predictions for problems, or else for
processors, that were left out of the training. The interval has 90% of these errors.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import exp
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.files import cache_dir
from tilewise.kernels.target import Target, detect, parse_target
from tilewise.search.errors import PredictorError
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.predictor.candidates import Candidates, candidates
from tilewise.search.predictor.features import NAMES, features
from tilewise.search.predictor.near import Winner, Winners, expected
from tilewise.search.predictor.trees import Trees
from tilewise.search.records import Solved
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space

Array = NDArray[np.float64]
log = logging.getLogger(__name__)
SHIPPED = Path(__file__).with_name("shipped.npz")
FORMAT = 1


class Errors(NamedTuple):
    """Logarithms of actual over predicted times: 5%, 50% and 95% of predictions are below."""

    low: float
    median: float
    high: float


NEAR_ERRORS = Errors(-0.3, 0.03, 0.5)  # of predictions from near problems


@dataclass(frozen=True)
class Prediction:
    """An untimed schedule; its time in us and the interval are None for a level nobody knows."""

    problem: Problem
    point: Point
    schedule: Schedule
    time_us: float | None
    interval_us: tuple[float, float] | None


@dataclass(frozen=True)
class Predictor:
    """A predictor trained on trials.

    Attributes:
        trees: corrections of the modelled logarithm of the time.
        levels: by canonical target, the logarithm of us in a modelled cycle.
        targets: processors of the trials, with their caches, by canonical name.
        of_problems, of_processors: errors for unseen problems of known targets, and for others.
    """

    trees: Trees
    levels: Mapping[str, float]
    targets: Mapping[str, Target]
    of_problems: Errors
    of_processors: Errors

    @classmethod
    def load(cls, path: Path = SHIPPED) -> "Predictor":
        """Read a file that `save` wrote; raise PredictorError if that is impossible."""
        try:
            with np.load(path, allow_pickle=False) as kept:
                about = json.loads(str(kept["about"]))
                parts = [kept[name] for name in ("features", "thresholds", "leaves")]
            if (about["format"], tuple(about["names"])) != (FORMAT, NAMES):
                raise ValueError("made by another version; run tilewise predictor train")
            return cls(
                Trees(*parts),
                about["levels"],
                {name: _target(stored) for name, stored in about["targets"].items()},
                Errors(*about["of_problems"]),
                Errors(*about["of_processors"]),
            )
        except Exception as error:  # what is read from a damaged file may raise anything
            raise PredictorError(f"{path}: no predictor can be read: {error}") from error

    def save(self, path: Path) -> None:
        """Write the predictor to a file, whole or not at all."""
        about = {
            "format": FORMAT,
            "names": NAMES,
            "levels": dict(self.levels),
            "targets": {name: _facts(target) for name, target in self.targets.items()},
            "of_problems": self.of_problems,
            "of_processors": self.of_processors,
        }
        draft = path.with_suffix(".tmp")
        with draft.open("wb") as file:
            np.savez_compressed(
                file,
                about=np.array(json.dumps(about)),
                features=self.trees.features.astype(np.int16),
                thresholds=self.trees.thresholds,
                leaves=self.trees.leaves.astype(np.float32),
            )
        draft.replace(path)

    def target(self, text: str) -> Target | None:
        """Return a target whose caches are known: of this machine, or of the training."""
        name, here = parse_target(text), detect()
        if name.kind != "cpu":
            return None
        is_here = name.cpu == "host" or name.is_of(here.named)
        found = here if is_here else self.targets.get(replace(name, threads=1).canonical)
        return found and found.with_threads(name.threads)

    def predict(
        self, problems: Sequence[Problem], target: Target, solved: Iterable[Solved] = ()
    ) -> list[Prediction | None]:
        """Return a prediction for each problem; None where the target has no legal schedule.

        `solved` are results on the target; where one is near, its winner is adapted.
        """
        winners = Winners(target, solved)
        found = [_near(problem, target, winners.near(problem)) for problem in problems]
        rest = [problem for problem, one in zip(problems, found, strict=True) if one is None]
        ranked = iter(self._ranked(rest, target))
        return [next(ranked) if one is None else one for one in found]

    def _ranked(self, problems: Sequence[Problem], target: Target) -> list[Prediction | None]:
        """Return for each problem the candidate that the trees like best."""
        found = [_candidates(problem, target) for problem in problems]
        known = [one for one in found if one is not None]
        if not known:
            return [None] * len(problems)
        rows = [features(space, few.some) for space, few in known]
        ends = np.cumsum([len(some) for some in rows])
        corrections = iter(np.split(self.trees.predict(np.concatenate(rows)), ends[:-1]))
        return [one and self._best(*one, next(corrections)) for one in found]

    def _best(self, space: Space, few: Candidates, corrections: Array) -> Prediction | None:
        scores = np.array([one.log_cycles for one in few.some]) + corrections
        order = range(len(few.some)) if few.is_ruled else np.argsort(scores, kind="stable").tolist()
        for place in order:
            point = few.some[place].point
            schedule = space.schedule(point)
            if isinstance(schedule, Schedule) and space.why_illegal(schedule) is None:
                time_us, interval_us = self._expected(space.target, float(scores[place]))
                return Prediction(space.problem, point, schedule, time_us, interval_us)
        return None

    def _expected(
        self, target: Target, score: float
    ) -> tuple[float | None, tuple[float, float] | None]:
        if target.threads > 1 and target.canonical not in self.levels:
            return None, None
        level, errors = self.level(target)
        low, median, high = (exp(score + level + error) for error in errors)
        return median, (low, high)

    def level(self, target: Target) -> tuple[float, Errors]:
        """Return the level of a target and the errors; of an unknown one the mean of all."""
        level = self.levels.get(target.canonical)
        if level is not None:
            return level, self.of_problems
        return float(np.mean(list(self.levels.values()))), self.of_processors


@cache
def shipped() -> Predictor:
    """Return the predictor that Tilewise ships."""
    return Predictor.load()


def own_file() -> Path:
    """Return where `tilewise predictor train` puts a predictor for this machine to use."""
    return cache_dir() / "predictor.npz"


def in_use() -> Predictor:
    """Return the predictor that was trained here, if any can be read, else the shipped one."""
    try:
        return _own(own_file(), own_file().stat().st_mtime_ns)
    except OSError:
        return shipped()


@lru_cache(maxsize=1)
def _own(path: Path, _changed_ns: int) -> Predictor:
    try:
        return Predictor.load(path)
    except PredictorError as error:  # one of an earlier version
        log.warning("%s", error)
        return shipped()


def _near(problem: Problem, target: Target, near: Sequence[Winner]) -> Prediction | None:
    """Return the winner of the nearest problem, adapted; None without any."""
    space = Space(problem, target)
    try:
        best = expected(AnalyticalModel.shipped(space), near)
    except KernelsError:
        return None
    if best is None:
        return None
    point, schedule, time_us = best
    low, median, high = (time_us * exp(error) for error in NEAR_ERRORS)
    return Prediction(problem, point, schedule, median, (low, high))


def _candidates(problem: Problem, target: Target) -> tuple[Space, Candidates] | None:
    """Return a space with its candidates; None where the target cannot compute the problem."""
    space = Space(problem, target)
    try:
        return space, candidates(AnalyticalModel.shipped(space))
    except KernelsError:
        return None


_SIZES = ("vector_bytes", "vector_registers", "l1_bytes", "l2_bytes", "l3_bytes")


def _facts(target: Target) -> dict[str, Any]:
    facts = {name: getattr(target, name) for name in _SIZES}
    return {"cpu": target.cpu, "features": sorted(target.features), **facts}


def _target(stored: dict[str, Any]) -> Target:
    return Target(**{**stored, "features": frozenset(stored["features"])})
