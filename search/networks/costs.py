"""What a choice has to know of times; who plans says where they come from."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from tilewise.kernels.schedule import Schedule
from tilewise.search.networks.layouts import Layout

DIRECT = "direct"
RETIMED = 2
"""Schedules of each algorithm that are timed again (`tilewise.search.networks.costing.retimed`)."""


@dataclass(frozen=True)
class Timed:
    """A schedule of a problem with its time.

    Attributes:
        algorithm: `direct`, `winograd F4` by the outputs of a tile, or `strassen` by its levels.
        hash: of the schedule.
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
        """The fastest known schedule of each algorithm, the fastest first; none if none is known.

        Args:
            problem: canonical.
        """
        ...

    def conversion_us(
        self, shape: tuple[int, ...], dtype: str, made: Layout, wanted: Layout
    ) -> float:
        """Microseconds in which a tensor of a shape is copied from one layout to another."""
        ...


def algorithm_of(schedule: Schedule) -> str:
    """Return the name of what a schedule does."""
    return DIRECT if schedule.algorithm is None else schedule.algorithm.label
