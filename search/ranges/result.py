"""What tuning a range of sizes gives: variants, their times at the samples, and the loss.

Nothing here imports numba or numpy, so that the service and the client stay light.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from math import exp, log
from statistics import fmean
from typing import Any

from tilewise.kernels.problem import ProblemRange
from tilewise.kernels.range_schedule import RangeSchedule


@dataclass(frozen=True)
class SampleTimes:
    """Times at one sampled size, measured in the same rounds.

    Attributes:
        best: the hash of the fastest schedule of all that were timed.
        best_us: its time.
        times_us: of each variant; None where one does not serve the size.
    """

    size: int
    best: str
    best_us: float
    times_us: tuple[float | None, ...]


@dataclass(frozen=True)
class Loss:
    """How much longer the variants take than the fastest schedule of each sample; 0.02 is 2%."""

    geometric_mean: float
    worst: float


@dataclass(frozen=True)
class RangeResult:
    """Variants that serve a range.

    Attributes:
        tiles: of each variant, how many neighbouring sizes take as many register tiles.
        samples: by size.
        formats: copies of constant weights that the variants need together; 1 if they share one.
        elapsed_s: of everything, searches included.
    """

    schedule: RangeSchedule
    tiles: tuple[int, ...]
    samples: tuple[SampleTimes, ...]
    formats: int = 1
    elapsed_s: float = 0.0

    def time_us(self, size: int) -> float:
        """Return the time at a size by its variant, estimated between samples."""
        self.schedule.problems.at(size)
        variant = self.schedule.choice[self.schedule.problems.sizes.index(size)]
        return estimated_us(self._times_us[variant], self.tiles[variant], size)

    @cached_property
    def _times_us(self) -> list[dict[int, float]]:
        """The times of each variant by sampled size."""
        return [
            {sample.size: taken for sample in self.samples if (taken := sample.times_us[index])}
            for index in range(len(self.tiles))
        ]

    @cached_property
    def loss(self) -> Loss:
        """Return the loss over the samples."""
        ratios = [self.time_us(sample.size) / sample.best_us for sample in self.samples]
        return Loss(exp(fmean(map(log, ratios))) - 1, max(ratios) - 1)

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {
            **self.schedule.to_json(),
            "tiles": list(self.tiles),
            "samples": [asdict(sample) for sample in self.samples],
            "formats": self.formats,
        }

    @classmethod
    def from_json(
        cls, problems: ProblemRange, source: Mapping[str, Any], elapsed_s: float = 0.0
    ) -> "RangeResult":
        """Return the result that `to_json` gave; raise ScheduleError where schedules are none."""
        samples = tuple(
            SampleTimes(one["size"], one["best"], one["best_us"], tuple(one["times_us"]))
            for one in source["samples"]
        )
        schedule = RangeSchedule.from_json(problems, source)
        return cls(schedule, tuple(source["tiles"]), samples, source["formats"], elapsed_s)


def estimated_us(times_us: Mapping[int, float], tile: int, size: int) -> float:
    """Return the time at a size by those at samples.

    An edge tile takes as long as a full one, so times are interpolated linearly over the number of
    tiles, and constant beyond the samples. A sampled size has its own time.
    """
    if size in times_us:
        return times_us[size]
    by_tiles: dict[int, list[float]] = {}
    for sample, taken in times_us.items():
        by_tiles.setdefault(-(-sample // tile), []).append(taken)
    counts, wanted = sorted(by_tiles), -(-size // tile)
    at = bisect_left(counts, wanted)
    if at == len(counts) or counts[at] == wanted or at == 0:
        return fmean(by_tiles[counts[min(at, len(counts) - 1)]])
    below, above = counts[at - 1], counts[at]
    share = (wanted - below) / (above - below)
    return (1 - share) * fmean(by_tiles[below]) + share * fmean(by_tiles[above])
