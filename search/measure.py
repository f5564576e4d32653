"""The timing protocol and its statistics.

Wall and thread time are read together: a preempted sample shows wall time above
thread time and is thrown away. The median is quoted, with the distribution-free 95%
interval between order statistics (Le Boudec, Performance Evaluation of Computer and
Communication Systems, 2010, section 2.2). Short kernels are repeated inside one sample.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from kernels.statistics import median_interval
from search.records import Measurement

SAMPLE_S = 500e-6
PREEMPTED_FRACTION, PREEMPTED_S = 0.03, 20e-6
LEAST_SAMPLES, MOST_SAMPLES = 5, 25
PATIENCE = 3  # slow runs and rejected samples stretch the budget at most this many times
DECIDE_AFTER = 2

Run = Callable[[int], None]


@dataclass
class Samples:
    """Wall times of one run, in seconds, and how many were thrown away."""

    repeat: int
    times: list[float] = field(default_factory=list)
    rejected: int = 0

    def take(self, run: Run) -> None:
        """Time one sample; keep it unless it was preempted."""
        wall, thread = time.perf_counter(), time.thread_time()
        run(self.repeat)
        thread, wall = time.thread_time() - thread, time.perf_counter() - wall
        if wall - thread > max(PREEMPTED_S, PREEMPTED_FRACTION * wall):
            self.rejected += 1
        else:
            self.times.append(wall / self.repeat)


def start(run: Run) -> Samples:
    """Warm up, and choose the repeats so that a sample takes long enough to be timed."""
    run(1)
    repeat = 1
    while True:
        begin = time.perf_counter()
        run(repeat)
        elapsed = time.perf_counter() - begin
        if elapsed >= SAMPLE_S / 2:
            return Samples(max(1, round(repeat * SAMPLE_S / elapsed)))
        repeat = max(repeat * 2, int(repeat * SAMPLE_S / max(elapsed, 1e-7)))


def measure(run: Run, budget_s: float, stop_above_s: float | None = None) -> tuple[Samples, bool]:
    """Time `run` within about `budget_s`; stop early once clearly above `stop_above_s`.

    Returns the samples and whether the measurement was stopped early. When every
    sample was preempted, one is taken anyway, so that there is a number at all.
    """
    samples = start(run)
    begin = time.perf_counter()
    while len(samples.times) < MOST_SAMPLES:
        samples.take(run)
        kept, elapsed = len(samples.times), time.perf_counter() - begin
        if stop_above_s is not None and kept >= DECIDE_AFTER and min(samples.times) > stop_above_s:
            return samples, True
        if elapsed > budget_s and kept >= LEAST_SAMPLES:
            break
        if elapsed > PATIENCE * budget_s and kept + samples.rejected >= DECIDE_AFTER:
            break
    if not samples.times:
        samples.times.append(_untested(run, samples.repeat))
    return samples, False


def _untested(run: Run, repeat: int) -> float:
    begin = time.perf_counter()
    run(repeat)
    return (time.perf_counter() - begin) / repeat


def interleave(runs: Sequence[Run], rounds: int) -> list[Samples]:
    """Time all runs in turn, `rounds` times, so that a drift of the machine meets them alike."""
    all_samples = [start(run) for run in runs]
    for index in range(rounds):
        order = range(len(runs)) if index % 2 == 0 else reversed(range(len(runs)))
        for i in order:
            all_samples[i].take(runs[i])
    for run, samples in zip(runs, all_samples, strict=True):
        if not samples.times:
            samples.times.append(_untested(run, samples.repeat))
    return all_samples


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
