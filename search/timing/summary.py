"""What is quoted of samples: a median with its interval, and whether that is narrow."""

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from tilewise.kernels.statistics import median_interval
from tilewise.search.records import Measurement

if TYPE_CHECKING:
    pass
WIDTH = 0.01  # of the median: half of an interval that needs no further sample


def is_narrow(times: Sequence[float]) -> bool:
    """Whether half the 95% interval of the median is within `WIDTH` of the median."""
    ordered = sorted(times)
    low, high = median_interval(len(ordered))
    return ordered[high] - ordered[low] <= 2 * WIDTH * median(ordered)


def summarise(times: Sequence[float], flops: int) -> Measurement:
    """Median speed and its 95% interval from times in seconds; ValueError when empty."""
    if not times:
        raise ValueError("no times to summarise")
    ordered = sorted(times)
    low, high = median_interval(len(ordered))
    middle = median(ordered)
    return Measurement(
        gflops=flops / middle / 1e9,
        interval=(flops / ordered[high] / 1e9, flops / ordered[low] / 1e9),
        time_us=middle * 1e6,
    )


def running_medians(samples: Sequence[float]) -> dict[int, float]:
    """The median of the first 1, 2, 4, ... samples and of all; one of each would be many rows."""
    counts = [*(2**i for i in range(len(samples).bit_length())), len(samples)]
    return {count: median(samples[:count]) for count in counts if 0 < count <= len(samples)}
