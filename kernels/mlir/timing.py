"""Median time of a call and what can be said about it."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from kernels.statistics import median_interval

FEWEST = 5
MOST = 10_000


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median, and its 95% order-statistic interval."""

    median: float
    low: float
    high: float


def time_call(call: Callable[[], object], seconds: float) -> Timing:
    """Warm up, then repeat `call` for about `seconds` (at least five times)."""
    call()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < FEWEST or (time.perf_counter() < end and len(samples) < MOST):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return summarise(samples)


def summarise(samples: list[float]) -> Timing:
    """The median and the order statistics that enclose it with 95% confidence."""
    ordered = sorted(samples)
    low, high = median_interval(len(ordered))
    return Timing(statistics.median(ordered), ordered[low], ordered[high])
