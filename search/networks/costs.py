"""What a choice has to know of times, and how long copies between layouts take on this machine."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

import numpy as np

from tilewise.kernels.native.conversion import Array, Conversion, converter
from tilewise.kernels.native.threads.pinning import pin, usable_processors
from tilewise.kernels.schedule import Schedule
from tilewise.search.networks.variants import Layout
from tilewise.search.timing.measure import measure

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


BUDGET_S = 0.04
_ELEMENT = re.compile(r"b?f(\d+)|[su]?i(\d+)")
Unsigned = type[np.unsignedinteger[Any]]
_TYPES: dict[int, Unsigned] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class CopyTimes:
    """Times of copies on this machine, each measured when it is asked for first."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], str, Layout, Layout], float] = {}

    def of(self, shape: tuple[int, ...], dtype: str, made: Layout, wanted: Layout) -> float:
        """As `conversion_us`."""
        copy = shape, dtype, made, wanted
        if copy not in self._known:
            self._known[copy] = conversion_us(*copy)
        return self._known[copy]


def conversion_us(shape: tuple[int, ...], dtype: str, made: Layout, wanted: Layout) -> float:
    """Microseconds of a copy on one thread, hot; infinity where there is none for such elements."""
    found = conversion_of(shape, dtype, made, wanted)
    if found is None:
        return float("inf")
    conversion, kind = found
    source = np.random.default_rng(0).integers(0, 250, conversion.source_shape).astype(kind)
    return _time_us(converter(conversion), source, np.zeros(conversion.target_shape, kind))


def conversion_of(
    shape: tuple[int, ...], dtype: str, made: Layout, wanted: Layout
) -> tuple[Conversion, Unsigned] | None:
    """The copy of a tensor, and the type in which its elements are moved; None if there is none."""
    kind = _TYPES.get(_bytes(dtype))
    if kind is None or made.halo or made.block or wanted.block:
        return None
    halo = tuple(wanted.halo if axis in wanted.around else 0 for axis in range(len(shape)))
    return Conversion(shape, made.order, wanted.order, halo), kind


def _time_us(copy: Callable[[Array, Array], None], source: Array, target: Array) -> float:
    def run(times: int) -> None:
        for _ in range(times):
            copy(source, target)

    copy(source, target)  # compiles
    before = pin({usable_processors()[0]})
    try:
        samples, _ = measure(run, BUDGET_S)
    finally:
        if before is not None:
            pin(before)
    return median(samples.times) * 1e6


def _bytes(dtype: str) -> int:
    """Of an element; 0 where that is not known."""
    found = _ELEMENT.fullmatch(dtype)
    return 0 if found is None else max(1, int(found[1] or found[2]) // 8)
