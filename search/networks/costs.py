"""Times for the choice of algorithms and layouts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tilewise.kernels.schedule import Schedule
from tilewise.search.networks.variants import TensorLayout

DIRECT = "direct"
MOST_TIMED_COLD = 2
"""Schedules of each algorithm that are timed again (`tilewise.search.networks.cold_weights`)."""


@dataclass(frozen=True)
class Timed:
    """A schedule of a problem with its median time.

    `algorithm` is `direct`, `winograd F4` by the outputs of a tile, or `strassen` by its levels.
    """

    algorithm: str
    hash: str
    steps: tuple[dict[str, Any], ...] = field(repr=False)
    time_us: float


@dataclass(frozen=True)
class LayerTimes:
    """Times of layers and of conversions.

    Attributes:
        schedules: returns the fastest known schedule of each algorithm of a problem, the fastest
            first.
        conversion_us: returns the microseconds of copying a tensor of a shape and type from one
            layout to another.
    """

    schedules: Callable[[str], tuple[Timed, ...]]
    conversion_us: Callable[[tuple[int, ...], str, TensorLayout, TensorLayout], float]


def algorithm_of(schedule: Schedule) -> str:
    """Return the name of a schedule's algorithm."""
    return DIRECT if schedule.algorithm is None else schedule.algorithm.label


def fastest_of_each(some: Iterable[Timed], most: int = 1) -> tuple[Timed, ...]:
    """Return the first `most` schedules of each algorithm, the fastest first."""
    found: dict[str, dict[str, Timed]] = {}
    for timed in some:
        alike = found.setdefault(timed.algorithm, {})
        if len(alike) < most:
            alike.setdefault(timed.hash, timed)
    every = (one for alike in found.values() for one in alike.values())
    return tuple(sorted(every, key=lambda one: one.time_us))
