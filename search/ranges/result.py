"""The result of tuning a range: variants, their times at the samples, and the loss.

Nothing here imports numba or numpy, so that the service and the client stay light.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from math import exp, log
from statistics import fmean
from typing import Any

from tilewise.kernels.problem import Problem, ProblemRange, Size, from_plain, sizes_text, to_plain
from tilewise.kernels.range_schedule import RangeSchedule


@dataclass(frozen=True)
class SampleTimes:
    """Times at one sampled size, measured in the same rounds.

    Attributes:
        best: the hash of the fastest schedule of all that were timed.
        best_us: its time.
        times_us: of each variant; None where one does not serve the size.
    """

    size: Size
    best: str
    best_us: float
    times_us: tuple[float | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the fields, as `RangeResult.from_json` reads them."""
        return {**asdict(self), "size": to_plain(self.size), "times_us": list(self.times_us)}


@dataclass(frozen=True)
class Loss:
    """How much longer the variants take than the fastest schedule of each sample; 0.02 is 2%."""

    geometric_mean: float
    worst: float


@dataclass(frozen=True)
class RangeResult:
    """Variants that serve a range.

    Attributes:
        tiles: of each variant, how many neighbouring values of each dim take as many register
            tiles.
        samples: by size.
        formats: copies of constant weights that the variants need together; 1 if they share one.
    """

    schedule: RangeSchedule
    tiles: tuple[Size, ...]
    samples: tuple[SampleTimes, ...]
    formats: int = 1

    def variant_at(self, size: Size) -> int:
        """Return the position of the variant that serves a size."""
        return self.schedule.choice[self.schedule.problems.sizes.index(size)]

    def time_us(self, size: Size) -> float:
        """Return the time at a size by its variant, estimated between samples."""
        at = self.variant_at(size)
        known = {one.size: taken for one in self.samples if (taken := one.times_us[at])}
        return estimated_us(known, self.tiles[at], size)

    @cached_property
    def loss(self) -> Loss:
        """Return the loss over the samples."""
        ratios = [self.time_us(sample.size) / sample.best_us for sample in self.samples]
        return Loss(exp(fmean(map(log, ratios))) - 1, max(ratios) - 1)

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {
            **self.schedule.to_json(),
            "tiles": list(map(to_plain, self.tiles)),
            "samples": [sample.to_json() for sample in self.samples],
            "formats": self.formats,
        }

    @classmethod
    def from_json(cls, problems: ProblemRange, source: Mapping[str, Any]) -> "RangeResult":
        """Return the result that `to_json` gave; raise ScheduleError where schedules are none."""
        samples = tuple(
            SampleTimes(
                from_plain(one["size"]), one["best"], one["best_us"], tuple(one["times_us"])
            )
            for one in source["samples"]
        )
        schedule = RangeSchedule.from_json(problems, source)
        tiles = tuple(map(from_plain, source["tiles"]))
        return cls(schedule, tiles, samples, source["formats"])


def size_text(found: Mapping[str, Any], first: int | Size, last: int | Size | None = None) -> str:
    """Return sizes in the object of a range as text, such as `batch=1,m=1..64`."""
    ends = from_plain(first), from_plain(first if last is None else last)
    return sizes_text(found["dim"].split(","), *ends)


def contains(problems: ProblemRange, wanted: Problem | ProblemRange) -> bool:
    """Return whether a range contains a problem, or all problems of another range."""
    if not isinstance(wanted, ProblemRange):
        return problems.holds(wanted)
    # The first two sizes are a step apart, so with the last they stand for all.
    ends = product(*((values[0], values[1], values[-1]) for values in wanted.ranges))
    return all(map(problems.holds, map(wanted.at, ends)))


def estimated_us(times_us: Mapping[Size, float], tile: Size, size: Size) -> float:
    """Return the time at a size by those at samples.

    An edge tile takes as long as a full one, so times are interpolated linearly over the number of
    tiles, along one dim after the other, and are in proportion to it beyond the samples. A sampled
    size has its own time.
    """
    if size in times_us:
        return times_us[size]

    def tiles(values: Size) -> Size:
        return tuple(-(-value // each) for value, each in zip(values, tile, strict=True))

    return _interpolated([(tiles(one), taken) for one, taken in times_us.items()], tiles(size))


def _interpolated(points: Sequence[tuple[Size, float]], wanted: Size) -> float:
    """Return the value at a point by those at others: linear along the first dim, then the next."""
    if not wanted:
        return fmean(value for _, value in points)
    rows: dict[int, list[tuple[Size, float]]] = {}
    for (count, *others), value in points:
        rows.setdefault(count, []).append((tuple(others), value))
    counts = sorted(rows)
    at = bisect_left(counts, wanted[0])
    above = counts[min(at, len(counts) - 1)]
    upper = _interpolated(rows[above], wanted[1:])
    if at in (0, len(counts)):
        return upper * wanted[0] / above
    below = counts[at - 1]
    share = (wanted[0] - below) / (above - below)
    return (1 - share) * _interpolated(rows[below], wanted[1:]) + share * upper
