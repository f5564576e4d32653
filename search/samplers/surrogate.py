"""The default sampler: a Gaussian process over a pool of candidate points.

It models the logarithm of the time over encoded points (`tilewise.search.space.parameters`) with
the analytical model as its mean, so that trials only have to teach where that errs. Candidates are
neighbours of the fastest points, random points, and neighbours of the most promising ones. The best
free candidates stay for the next proposal, so that the climb continues. The largest expected
improvement is proposed (Jones, Schonlau and Welch, Efficient Global Optimization of Expensive
Black-Box Functions, 1998); in the last part of the budget, the fastest by belief.

Every third proposal is greedy, the fastest neighbour of the fastest point by belief (De Ath,
Everson, Rahat and Fieldsend, Greed Is Good, 2021), because a change of the unrolling moves a time
by 5 to 20% where the smooth process is most certain. Values of parameters that no trial has had
come first.

Points are ranked by belief, because on a busy machine the best sample is a lucky one (Picheny,
Wagner and Ginsbourger, A Benchmark of Kriging-Based Infill Criteria for Noisy Optimization, 2013).
The process knows how far trials err (`benchmarks.measuring.trial_error`), more so at an unusual
speed factor. A proposed point is assumed to be as fast as predicted until it is timed (Ginsbourger
et al., Kriging Is Well-Suited to Parallelize Optimization, 2010).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.levels import TimeModel
from tilewise.search.samplers.base import Reported, SpaceSampler
from tilewise.search.samplers.gaussian_process import GaussianProcess, expected_improvement
from tilewise.search.space.points import Point, Value
from tilewise.search.space.space import Space

Array = NDArray[np.float64]

MOST_POINTS = 4096  # points that are kept; beyond that they are looked at anew


class PointEncoding:
    """The encoding of points and the analytical model's estimates."""

    def __init__(self, model: TimeModel) -> None:
        self._model, self._space = model, model.space
        self._rows: dict[object, int] = {}
        self._width = sum(len(p.encode(p.values[0])) for p in self._space.parameters)
        self._codes: Array = np.empty((0, self._width))
        self._estimates: Array = np.empty(0)

    def __call__(self, points: Sequence[Point]) -> tuple[Array, Array]:
        """Return encodings, a row per point, and logarithms of cycles."""
        if len(self._rows) + len(points) > len(self._codes):
            self._rows.clear()
            most = max(MOST_POINTS, len(points))
            self._codes, self._estimates = np.empty((most, self._width)), np.empty(most)
        rows = [self._row(point) for point in points]
        return self._codes[rows], self._estimates[rows]

    def _row(self, point: Point) -> int:
        key = self._space.key(point)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self._rows)
            self._codes[row] = self._space.encode(point)
            self._estimates[row] = self._model.log_time(point)
        return row


FEW_VALUES = 4  # packs, loop orders, unroll factors; sizes of blocks where a dim is tiny


class Untried:
    """Values of a space's parameters that no trial has had."""

    def __init__(self, space: Space) -> None:
        self._left: dict[str, list[Value]] = {
            p.name: list(p.values) for p in space.parameters if len(p.values) <= FEW_VALUES
        }

    def take_out(self, point: Point) -> None:
        """Remove the values of a tried point."""
        for name, values in self._left.items():
            if point[name] in values:
                values.remove(point[name])

    def in_place_of(self, best: Point) -> Iterator[Point]:
        """Yield `best` with each remaining value."""
        for name, values in self._left.items():
            for value in values:
                yield best | {name: value}


CENTRES = 5  # of what is believed the fastest, whose neighbours are candidates
SETTLE = 0.25  # of the budget, the last part, goes to what is believed the fastest
GREEDY = 3  # every so many-th proposal is a neighbour of the fastest
RANDOM, FRESH = 40, 8  # candidates from anywhere, and how many of them are new each time
PROMISING = 20  # free candidates that stay for the next proposal
CLIMBED = 2  # of the free ones, whose neighbours are candidates too
SLOWEST = log(4.0)  # more than so many times slower than the best is just slow
MOST_DATA = 160  # the model sees the fastest half and the newest half of so many
TRIALS = 64  # a budget, where nobody says
FEW = 3  # trials before which there is nothing to model
TRIAL_ERRS = 0.01  # any trial's time, as a share of it
ERRS = 0.4  # of a speed_factor's distance from the usual one: by so much more a time may be wrong


class _Timed(NamedTuple):
    """Logarithms of a trial's time and speed factor."""

    log_time: float
    point: Point
    log_speed_factor: float


class SurrogateSampler(SpaceSampler):
    """Proposes where the time may improve most, given what was timed.

    Towards the end of the budget of `trials` it proposes what it believes the fastest. `model`
    defaults to the one shipped for the target.
    """

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        refused: Iterable[str] = (),
        *,
        trials: int = TRIALS,
        model: TimeModel | None = None,
    ) -> None:
        super().__init__(space, seed, refused)
        self._settles_at = trials - int(SETTLE * trials)
        self._features = PointEncoding(model or AnalyticalModel.shipped(space))
        self._timed: list[_Timed] = []
        self._untried = Untried(space)
        self._turn = 0
        self._anywhere: deque[Point] = deque(maxlen=RANDOM)
        self._promising: list[Point] = []
        self._process = GaussianProcess()

    def learn(self, reported: Reported) -> None:
        """Keep a trial that was timed."""
        self._untried.take_out(reported.point)
        if reported.time is not None:
            speed_factor = log(reported.speed_factor)
            self._timed.append(_Timed(log(reported.time), reported.point, speed_factor))

    def propose(self) -> Point:
        """Return a due change of the fastest point, else the largest expected improvement."""
        if len(self._timed) < FEW:
            return self._space.draw(self._random)
        data = self._data()
        encoded, expected = self._features([timed.point for timed in data])
        offset = self._fit(encoded, data, expected)
        mean, _ = self._process.predict(encoded)
        known = mean + expected + offset
        centres = [data[i].point for i in np.argsort(known)[:CENTRES]]
        if self._history.running:
            self._process.believe(self._features(self._history.running)[0])
        chosen = self._neighbour(centres[0])
        if chosen is None:
            self._promising = self._climbed(centres, offset, float(known.min()))
            if not self._promising:
                return self._space.draw(self._random)
            chosen = self._promising.pop(0)
        self._untried.take_out(chosen)
        return chosen

    def _fit(self, encoded: Array, data: list[_Timed], expected: Array) -> float:
        """Fit the model's errors; return the logarithm of its constant factor."""
        times = np.array([timed.log_time for timed in data])
        residual = np.minimum(times, times.min() + SLOWEST) - expected
        offset = float(np.median(residual))
        speed_factors = np.array([timed.log_speed_factor for timed in data])
        errors = ERRS * (speed_factors - np.median(speed_factors))
        self._process.fit(encoded, residual - offset, TRIAL_ERRS**2 + errors**2)
        return offset

    def _neighbour(self, best: Point) -> Point | None:
        """Return a due single change of `best`, if there is one."""
        if len(self._timed) >= self._settles_at:
            return None
        new = self._fastest(self._untried.in_place_of(best))
        if new is not None:
            return new
        self._turn += 1
        is_greedy = self._turn % GREEDY == 0
        return self._fastest(self._space.neighbours(best)) if is_greedy else None

    def _fastest(self, points: Iterable[Point]) -> Point | None:
        """Return the fastest free point by belief."""
        free = [point for point in points if self._history.is_free(point)]
        if not free:
            return None
        candidates, estimates = self._features(free)
        mean, _ = self._process.predict(candidates)
        return free[int(np.argmin(mean + estimates))]

    def _climbed(self, centres: list[Point], offset: float, best: float) -> list[Point]:
        """Return the best free candidates after a step up from the first of them."""
        pool = self._pool(centres)
        worth = self._worth(pool, offset, best)
        is_free = self._history.is_free
        tops = islice((pool[i] for i in np.argsort(worth) if is_free(pool[i])), CLIMBED)
        known = {self._space.key(point) for point in pool}
        near = [point for top in tops for point in self._space.neighbours(top)]
        higher = {key: p for p in near if (key := self._space.key(p)) not in known}
        if higher:
            pool += higher.values()
            more = self._worth(list(higher.values()), offset, best)
            worth = np.concatenate([worth, more])
        free = (pool[i] for i in np.argsort(worth) if is_free(pool[i]))
        return list(islice(free, PROMISING))

    def _pool(self, centres: list[Point]) -> list[Point]:
        pool = [p for centre in centres for p in self._space.neighbours(centre)]
        drawn = FRESH if self._anywhere else RANDOM
        self._anywhere.extend(self._space.draw(self._random) for _ in range(drawn))
        pool += [*self._anywhere, *self._promising]
        return list({self._space.key(point): point for point in pool}.values())

    def _worth(self, pool: list[Point], offset: float, best: float) -> Array:
        """Return values that are smaller for better points."""
        candidates, estimates = self._features(pool)
        mean, deviation = self._process.predict(candidates)
        times = np.asarray(mean + estimates + offset)
        if len(self._timed) >= self._settles_at:
            return times
        return -expected_improvement(times, deviation, best)

    def _data(self) -> list[_Timed]:
        if len(self._timed) <= MOST_DATA:
            return self._timed
        newest = self._timed[-MOST_DATA // 2 :]
        older = sorted(self._timed[: -MOST_DATA // 2], key=lambda timed: timed.log_time)
        return older[: MOST_DATA // 2] + newest
