"""Median time of a call, and its confidence interval."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewise.kernels.statistics import median_interval

FEWEST = 5
MOST = 10_000
SHORTEST = 50e-6  # seconds of a sample; entering a call costs about a microsecond
CLOCK = 1e-7
MOST_REPEATS = 1 << 20  # of a call that LLVM removes when repeated


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


def time_in_turn(calls: Sequence[Callable[[int], object]], seconds: float) -> list[float]:
    """Return the median seconds of one run of each of several calls, measured in turns."""
    return [statistics.median(samples) for samples in sample_in_turns(calls, seconds)]


def sample_in_turns(calls: Sequence[Callable[[int], object]], seconds: float) -> list[list[float]]:
    """Return samples of seconds per run for several calls, measured in turns.

    Each call takes the number of runs and is measured for about `seconds`. Short calls run several
    times per sample. Slow ones get fewer than `FEWEST` samples, but at least one, once `FEWEST`
    times `seconds` are spent.
    """
    turns = [_Turn(call, seconds) for call in calls]
    while waiting := [turn for turn in turns if not turn.is_over]:
        for turn in waiting:
            turn.sample()
    return [turn.samples for turn in turns]


class _Turn:
    """One of several calls that are measured in turns; construction warms it up."""

    def __init__(self, call: Callable[[int], object], seconds: float) -> None:
        self.samples: list[float] = []
        self._call, self._seconds, self._spent, self._repeats = call, seconds, 0.0, 1
        while (taken := self._run()) < SHORTEST and self._repeats < MOST_REPEATS:
            self._repeats = max(2 * self._repeats, math.ceil(self._repeats * SHORTEST / taken))
        if taken > FEWEST * seconds:  # too slow for a second run, and being cold is little of it
            self.samples.append(taken / self._repeats)

    @property
    def is_over(self) -> bool:
        """Whether there are enough samples."""
        if len(self.samples) < FEWEST:
            return bool(self.samples) and self._spent > FEWEST * self._seconds
        return self._spent > self._seconds or len(self.samples) >= MOST

    def sample(self) -> None:
        """Take one more sample."""
        self.samples.append(self._run() / self._repeats)

    def _run(self) -> float:
        start = time.perf_counter()
        self._call(self._repeats)
        taken = max(time.perf_counter() - start, CLOCK)
        self._spent += taken
        return taken


def summarise(samples: list[float]) -> Timing:
    """Return the median and the order statistics that enclose it with 95% confidence."""
    ordered = sorted(samples)
    low, high = median_interval(len(ordered))
    return Timing(statistics.median(ordered), ordered[low], ordered[high])
