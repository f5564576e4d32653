"""Samples of one run, and their median with its interval."""

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from tilewise.kernels.statistics import median_interval
from tilewise.search.records import Measurement

if TYPE_CHECKING:
    from tilewise.search.timing.cold import ColdMode


WIDTH = 0.01  # of the median: half of an interval that needs no further sample


def is_narrow(times: Sequence[float]) -> bool:
    """Return whether half the 95% interval of the median is within `WIDTH` of the median."""
    ordered = sorted(times)
    low, high = median_interval(len(ordered))
    return ordered[high] - ordered[low] <= 2 * WIDTH * median(ordered)


def summarise(times: Sequence[float], flops: int) -> Measurement:
    """Return median speed and 95% interval of times in seconds; raise ValueError when empty."""
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


SAMPLE_S = 500e-6
PREEMPTED_FRACTION, PREEMPTED_S = 0.03, 20e-6
PAUSE_S = 3e-3  # several times what `tilewise.search.runner.runner.PARK_EARLY` lets a thread spin
LONG_RUN_S = 4 * SAMPLE_S  # so long that nothing has to be repeated
VERY_LONG_RUN_S = 20 * SAMPLE_S  # in which the state of the caches matters little
LEADING_RUNS = 3
"""Runs after which a last cache that keeps what the second cache evicts holds what they read.

On Emerald Rapids 7x7x512 takes 1.27 ms after one, 0.88 after two, 0.86 after four or twenty; oneDNN
1.85, 1.58 and 1.41. 14x14x512, which reads 38 MB, takes 3.6, 3.1, 2.6 after one, two and three.
"""
WAITING_S = 50e-3  # in which a thread that computes shows how long a run is
Run = Callable[[int], None]


@dataclass
class Samples:
    """Samples of one run.

    Attributes:
        repeat: runs in one sample.
        times: of one run, in seconds: wall time, or thread time of a preempted sample.
        preempted: samples of one thread that other processes interrupted.
        evict: empties the caches before each sample, and wakes the threads; None measures hot.
        least_s: shortest run of any sample; on one thread by its own time.
        last_s: one run of the latest sample, by the same clock.
        rounds: the round of each interleaved sample.
        lead: untimed runs before each interleaved sample.
    """

    repeat: int
    threads: int = 1
    times: list[float] = field(default_factory=list)
    preempted: int = 0
    evict: Callable[[], None] | None = None
    least_s: float = float("inf")
    last_s: float = float("inf")
    rounds: list[int] = field(default_factory=list)
    lead: int = 0

    def take(self, run: Run, in_round: int = 0) -> None:
        """Time one sample."""
        if self.evict is not None:
            self.evict()
        before = waits()
        wall, thread = time.perf_counter(), time.thread_time()
        run(self.repeat)
        thread, wall = time.thread_time() - thread, time.perf_counter() - wall
        computes_alone = self.threads == 1 and thread > 0 and waits() == before
        is_longer = wall - thread > max(PREEMPTED_S, PREEMPTED_FRACTION * wall)
        is_preempted = computes_alone and is_longer
        self.last_s = (thread if computes_alone else wall) / self.repeat
        self.least_s = min(self.least_s, self.last_s)
        self.times.append((thread if is_preempted else wall) / self.repeat)
        self.rounds.append(in_round)
        self.preempted += is_preempted


def waits() -> int:
    """Return the number of voluntary context switches of this thread; 0 if unknown.

    A run that waits for other threads has them, one that is preempted does not.
    """
    who = getattr(resource, "RUSAGE_THREAD", None)  # Linux
    return 0 if who is None else resource.getrusage(who).ru_nvcsw


def spent_s(threads: int) -> float:
    """Return a clock in seconds for budgets of measurements.

    On one thread it is the thread's, since other processes delay measurements.
    """
    return time.thread_time() if threads == 1 else time.perf_counter()


def settle(threads: int) -> None:
    """Wait until the threads of the last run sleep."""
    if threads > 1:
        time.sleep(PAUSE_S)


def leading_runs(run_s: float) -> int:
    """Return the number of untimed runs that fill the caches as the run itself leaves them.

    Long runs fill the caches by themselves.
    """
    return min(LEADING_RUNS, int(VERY_LONG_RUN_S / run_s)) if run_s < VERY_LONG_RUN_S else 0


def sample_cost(run_s: float, threads: int, is_cold: bool = False) -> float:
    """Return about how many seconds `interleave` spends per sample, without emptying caches."""
    if threads > 1:
        return max(run_s, SAMPLE_S) + PAUSE_S + run_s
    if is_cold:
        return max(run_s, SAMPLE_S)
    return max(run_s, SAMPLE_S) + leading_runs(run_s) * run_s


def start(run: Run, threads: int = 1, cold: "ColdMode | None" = None) -> Samples:
    """Warm up, and choose repeats so that a sample is long enough to be timed.

    One thread's own time decides, so that preemption does not. Cold runs repeat once per copy. In
    turn with other hot runs, an untimed run wakes several threads, or some fill the caches.
    """
    settle(threads)
    ran, wall = _ran(run, 1, threads)
    if cold is not None:
        return Samples(cold.copies - cold.spare, threads, evict=partial(cold.prepare, run))
    run_s = ran if ran >= LONG_RUN_S else _seconds_of(run, wall, threads)
    repeat = 1 if ran >= LONG_RUN_S else max(1, round(SAMPLE_S / run_s))
    return Samples(repeat, threads, lead=1 if threads > 1 else leading_runs(run_s))


def _seconds_of(run: Run, least_s: float, threads: int) -> float:
    """Return about how many seconds a short run takes, whose first took `least_s` at most."""
    repeat, passed = 1, 0.0
    while True:
        ran, wall = _ran(run, repeat, threads)
        passed, least_s = passed + wall, min(least_s, wall / repeat)
        if ran >= SAMPLE_S / 2:
            return ran / repeat
        if passed > WAITING_S:
            return least_s
        wanted = repeat * SAMPLE_S / max(ran, 1e-7)
        repeat = max(repeat * 2, int(min(wanted, repeat * WAITING_S / max(wall, 1e-7))))


def _ran(run: Run, repeat: int, threads: int) -> tuple[float, float]:
    """Return the seconds of some runs, by the thread's (on one) and by the wall clock."""
    wall, thread = time.perf_counter(), time.thread_time()
    run(repeat)
    thread, wall = time.thread_time() - thread, time.perf_counter() - wall
    return thread if threads == 1 else wall, wall
