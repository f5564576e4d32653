"""Times of layers from a store, and of copies measured here."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tilewise.backends.base import Json
from tilewise.backends.choose import Backend
from tilewise.errors import MissingError
from tilewise.kernels.schedule import Schedule
from tilewise.search.networks.copy_times import CopyTimes
from tilewise.search.networks.costs import Timed, algorithm_of, fastest_of_each
from tilewise.search.networks.variants import TensorLayout
from tilewise.search.records import CacheMode


@dataclass
class StoredCosts:
    """Costs of this machine (`tilewise.search.networks.costs.Costs`), each read once.

    `most` limits the schedules per algorithm. With several, which will be timed again, those count
    that were stopped early because others were faster.
    """

    backend: Backend
    target: str
    cache: CacheMode
    most: int = 1
    _known: dict[str, tuple[Timed, ...]] = field(default_factory=dict)
    _copies: CopyTimes = field(default_factory=CopyTimes)

    def schedules(self, problem: str) -> tuple[Timed, ...]:
        """Return the stored best and the fastest trials per algorithm, fastest first."""
        if problem not in self._known:
            self._known[problem] = self._stored(problem)
        return self._known[problem]

    def conversion_us(
        self, shape: tuple[int, ...], dtype: str, made: TensorLayout, wanted: TensorLayout
    ) -> float:
        """Return the time of a copy, measured on first use."""
        return self._copies.of(shape, dtype, made, wanted)

    def _stored(self, problem: str) -> tuple[Timed, ...]:
        try:
            found = self.backend.show(problem, self.target, self.cache)
            trials = self.backend.trials(problem, self.target)
        except MissingError:
            return ()
        if found["stale"]:
            return ()
        others = map(_timed, sorted(filter(self._counts(found), trials), key=_time))
        return fastest_of_each(_timed(found["best"]), others, self.most)

    def _counts(self, found: Json) -> Callable[[Json], bool]:
        """Return a filter for trials that were timed as the stored best was."""
        states = ("timed",) if self.most == 1 else ("timed", "pruned")

        def counts(trial: Json) -> bool:
            is_alike = (trial["cache"], trial["toolchain"]) == (self.cache, found["toolchain"])
            return bool(is_alike and trial["state"] in states and trial["time_us"] is not None)

        return counts


def _time(trial: Json) -> float:
    return float(trial["time_us"])


def _timed(row: Json) -> Timed:
    schedule = Schedule.from_json(row["steps"])
    return Timed(algorithm_of(schedule), row["hash"], tuple(row["steps"]), row["time_us"])
