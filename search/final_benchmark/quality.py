"""The quality of a result, and which of two results is better."""

from dataclasses import dataclass
from typing import Literal

from tilewise.search.records import Measurement

Quality = Literal["good", "noisy"]
WIDEST = 0.25
"""Width of the 95% interval over the speed from which a result is noisy.

Of our 237 results in `benchmarks/data/results`, from two machines, 2 are noisy by it.
"""
LEAST_SAMPLES = 6  # the median of fewer has no 95% interval from order statistics


def quality_of(measurement: Measurement, samples: int = 0) -> Quality:
    """Return the quality of a speed whose median is of `samples`, 0 if unknown.

    Disturbed rounds need no rule: they are in no median, and their distance is in the interval
    (`tilewise.search.final_benchmark.rounds`).
    """
    low, high = measurement.interval
    is_narrow = high - low <= WIDEST * measurement.gflops
    return "good" if is_narrow and not 0 < samples < LEAST_SAMPLES else "noisy"


@dataclass(frozen=True)
class JudgedSpeed:
    """A speed with its quality, for comparison with others of the same work."""

    measurement: Measurement
    quality: Quality

    @property
    def width(self) -> float:
        """Width of the interval relative to the speed."""
        low, high = self.measurement.interval
        return (high - low) / self.measurement.gflops

    def supersedes(self, other: "JudgedSpeed") -> bool:
        """Return whether this result replaces an older one.

        A good one replaces a noisy one. The faster of two good ones stays, and of two noisy ones
        that with the narrower interval.
        """
        if self.quality != other.quality:
            return self.quality == "good"
        if self.quality == "noisy":
            return self.width <= other.width
        return self.measurement.gflops >= other.measurement.gflops
