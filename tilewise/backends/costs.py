"""Times of layers from a store, and of copies measured here."""

import functools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import itemgetter

from tilewise.backends.choose import Backend
from tilewise.errors import MissingError
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.schedule import Schedule
from tilewise.schema.base import Json
from tilewise.search.networks.costs import LayerTimes, Timed, algorithm_of, fastest_of_each
from tilewise.search.networks.pass_times import conversion_us
from tilewise.search.records import RECHECKED, CacheMode


def stored_costs(backend: Backend, target: str, cache: CacheMode, most: int = 1) -> LayerTimes:
    """Return the stored best and the fastest trials of each algorithm, and times of copies here.

    `most` limits the schedules per algorithm. With several, which will be timed again, those count
    that were stopped early because others were faster.
    """
    states = ("timed",) if most == 1 else ("timed", "pruned")

    def schedules(problem: str) -> tuple[Timed, ...]:
        try:
            found = backend.show(problem, target, cache, match="range")
        except MissingError:
            return ()
        try:
            trials = backend.trials(problem, target)
        except MissingError:  # of one size of a range
            trials = []
        if found["stale"]:
            return ()
        alike = cache, found["toolchain"]
        others = [
            trial
            for trial in trials
            if (trial["cache"], trial["toolchain"]) == alike
            and trial["state"] in states
            and trial["time_us"] is not None
            and trial["origin"] != RECHECKED
        ]
        rows = (found["best"], *sorted(others, key=itemgetter("time_us")))
        return fastest_of_each(_readable(rows), most)

    return LayerTimes(functools.cache(schedules), functools.partial(conversion_us, target))


def _readable(rows: Iterable[Json]) -> Iterator[Timed]:
    """Yield the schedules of trials, without damaged ones."""
    for row in rows:
        with suppress(ScheduleError):
            algorithm = algorithm_of(Schedule.from_json(row["steps"]))
            yield Timed(algorithm, row["hash"], tuple(row["steps"]), row["time_us"])
