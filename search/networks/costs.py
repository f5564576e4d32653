"""Times that a choice of algorithms and layouts weighs."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tilewise.kernels.schedule import Schedule
from tilewise.search.networks.variants import Layout

DIRECT = "direct"
RETIMED = 2
"""Schedules of each algorithm that are timed again (`tilewise.search.networks.cold_weights`)."""


@dataclass(frozen=True)
class Timed:
    """A schedule of a problem with its time.

    Attributes:
        algorithm: `direct`, `winograd F4` by the outputs of a tile, or `strassen` by its levels.
        steps: of the schedule, as JSON.
        time_us: of one run, the median.
    """

    algorithm: str
    hash: str
    steps: tuple[dict[str, Any], ...] = field(repr=False)
    time_us: float


class Costs(Protocol):
    """Times of layers and of conversions."""

    def schedules(self, problem: str) -> tuple[Timed, ...]:
        """Return the fastest known schedule of each algorithm, the fastest first."""
        ...

    def conversion_us(
        self, shape: tuple[int, ...], dtype: str, made: Layout, wanted: Layout
    ) -> float:
        """Microseconds in which a tensor of a shape is copied from one layout to another."""
        ...


def algorithm_of(schedule: Schedule) -> str:
    """Return the name of what a schedule does."""
    return DIRECT if schedule.algorithm is None else schedule.algorithm.label


def fastest_of_each(best: Timed, others: Iterable[Timed], most: int) -> tuple[Timed, ...]:
    """The stored best, and of each algorithm the fastest others.

    Args:
        best: what the store gives for the problem; it is taken whatever others take.
        others: the fastest first; a schedule that comes again is passed over.
        most: schedules of one algorithm.

    Returns:
        The fastest first.
    """
    found = {best.algorithm: {best.hash: best}}
    for timed in others:
        alike = found.setdefault(timed.algorithm, {})
        if len(alike) < most:
            alike.setdefault(timed.hash, timed)
    every = (one for alike in found.values() for one in alike.values())
    return tuple(sorted(every, key=lambda one: one.time_us))
