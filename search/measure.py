"""The timing protocol and its statistics.

On one thread, wall and thread time are read together: a preempted sample shows wall time
above thread time and is thrown away. The median is quoted, with the distribution-free 95%
interval between order statistics (Le Boudec, Performance Evaluation of Computer and
Communication Systems, 2010, section 2.2). Short kernels are repeated inside one sample.

On several threads every sample is kept and the median alone stands against preemption,
for there is no clock or counter that shows it alike for all contenders. A caller that
waits for others by blocking has next to no thread time. The process's time counts the
other threads' last timer tick late, by more than a sample takes. Involuntary context
switches count threads of the same run that displace each other: beside other work on two
cores they condemn a tenth to a quarter of the samples of libraries whose threads spin,
and nearly all of those of one whose threads block.

Threads that spin after a call would take cores from whoever is timed next. So in rounds
on several threads each sample comes after a pause, in which they park (`search.runner`
has them do so in time), and one run untimed, which wakes its own.
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
PAUSE_S = 3e-3  # several times what `search.runner.PARK_EARLY` lets a thread spin
PATIENCE = 3  # slow runs and rejected samples stretch the budget at most this many times
DECIDE_AFTER = 2

Run = Callable[[int], None]


@dataclass
class Samples:
    """Samples of one run, and how many were thrown away.

    Attributes:
        repeat: runs in one sample.
        threads: how many a run uses; samples of several are never thrown away.
        times: of one run, in seconds.
        rejected: samples that were preempted.
    """

    repeat: int
    threads: int = 1
    times: list[float] = field(default_factory=list)
    rejected: int = 0

    def take(self, run: Run) -> None:
        """Time one sample; keep it unless it was preempted."""
        wall, thread = time.perf_counter(), time.thread_time()
        run(self.repeat)
        thread, wall = time.thread_time() - thread, time.perf_counter() - wall
        preempted = wall - thread > max(PREEMPTED_S, PREEMPTED_FRACTION * wall)
        if preempted and self.threads == 1:
            self.rejected += 1
        else:
            self.times.append(wall / self.repeat)


def settle(threads: int) -> None:
    """Let the threads of whoever ran last park; a run on one thread has left none."""
    if threads > 1:
        time.sleep(PAUSE_S)


def sample_cost(run_s: float, threads: int) -> float:
    """About how many seconds `interleave` spends on a sample of a run of `run_s` seconds."""
    settling_s = PAUSE_S + run_s if threads > 1 else 0.0
    return max(run_s, SAMPLE_S) + settling_s


def start(run: Run, threads: int = 1) -> Samples:
    """Warm up, and choose the repeats so that a sample takes long enough to be timed."""
    settle(threads)
    run(1)
    repeat = 1
    while True:
        begin = time.perf_counter()
        run(repeat)
        elapsed = time.perf_counter() - begin
        if elapsed >= SAMPLE_S / 2:
            return Samples(max(1, round(repeat * SAMPLE_S / elapsed)), threads)
        repeat = max(repeat * 2, int(repeat * SAMPLE_S / max(elapsed, 1e-7)))


def measure(
    run: Run, budget_s: float, stop_above_s: float | None = None, threads: int = 1
) -> tuple[Samples, bool]:
    """Time `run` within about `budget_s`; stop early once clearly above `stop_above_s`.

    Returns the samples and whether the measurement was stopped early. When every
    sample was preempted, one is taken anyway, so that there is a number at all.
    """
    samples = start(run, threads)
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


def interleave(runs: Sequence[Run], rounds: int, threads: int = 1) -> list[Samples]:
    """Time all runs in turn, `rounds` times, so that a drift of the machine meets them alike.

    Args:
        runs: the contenders.
        rounds: samples of each.
        threads: how many each of them uses.
    """
    all_samples = [start(run, threads) for run in runs]
    for index in range(rounds):
        order = range(len(runs)) if index % 2 == 0 else reversed(range(len(runs)))
        for i in order:
            if threads > 1:
                settle(threads)
                runs[i](1)
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
