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

How many samples are taken follows their spread: until the interval is as narrow as
`WIDTH`, or a budget ends.

A hot measurement finds its operands in whatever caches hold them after a run before of its own
kind, as in a loop. After one of another kind, with code and panels of its own, a run of a
millisecond takes 0 to 6% longer, by schedule. So where several are timed in turn each runs once
untimed before its sample. A cold one (`search.timing.cold`) has them evicted before every sample,
which then is of a single run; several copies of the operands take part in turn where one run is too
short to time.

Threads that spin after a call would take cores from whoever is timed next. So in rounds
on several threads each sample comes after a pause, in which they park (`search.runner.runner`
has them do so in time), and one run untimed, which wakes its own.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from kernels.statistics import median_interval
from search.records import Measurement

if TYPE_CHECKING:
    from search.timing.cold import ColdMode

SAMPLE_S = 500e-6
PREEMPTED_FRACTION, PREEMPTED_S = 0.03, 20e-6
LEAST_SAMPLES, MOST_SAMPLES = 5, 25
WIDTH = 0.01  # of the median: half of an interval that needs no further sample
PAUSE_S = 3e-3  # several times what `search.runner.runner.PARK_EARLY` lets a thread spin
PATIENCE = 3  # slow runs and rejected samples stretch the budget at most this many times
DECIDE_AFTER = 2
FEW_SAMPLES = 3  # enough of long runs, which average over what spreads short ones; and
# to place a run that is behind, well enough for a search
OUT_OF_REACH = 1.6  # times the limit, by a single sample: no second one is needed
LONG_RUN_S = 4 * SAMPLE_S  # so long that nothing has to be repeated
VERY_LONG_RUN_S = 20 * SAMPLE_S  # beside which it is little what a run finds in the caches
WAITING_S = 50e-3  # in which a thread that computes has told how long a run is

Run = Callable[[int], None]


@dataclass
class Samples:
    """Samples of one run, and how many were thrown away.

    Attributes:
        repeat: runs in one sample.
        threads: how many a run uses; samples of several are never thrown away.
        times: of one run, in seconds.
        rejected: samples that were preempted.
        least_s: shortest run of any sample, also of those; on one thread by the time that
            the thread had, which no neighbour lengthens much.
        last_s: one run of the latest sample, kept or not, by the same clock.
        evict: called before each sample, to empty the caches; None measures hot.
        rounds: of interleaved samples, the round of each that was kept.
        lead: runs before each sample of interleaved ones, untimed.
    """

    repeat: int
    threads: int = 1
    times: list[float] = field(default_factory=list)
    rejected: int = 0
    evict: Callable[[], None] | None = None
    least_s: float = float("inf")
    last_s: float = float("inf")
    rounds: list[int] = field(default_factory=list)
    lead: int = 0

    @property
    def taken(self) -> int:
        """Samples, kept or not."""
        return len(self.times) + self.rejected

    def take(self, run: Run, in_round: int = 0) -> None:
        """Time one sample; keep it unless it was preempted."""
        if self.evict is not None:
            self.evict()
        wall, thread = time.perf_counter(), time.thread_time()
        run(self.repeat)
        thread, wall = time.thread_time() - thread, time.perf_counter() - wall
        ran = thread if self.threads == 1 else wall
        self.last_s = ran / self.repeat
        self.least_s = min(self.least_s, self.last_s)
        preempted = wall - thread > max(PREEMPTED_S, PREEMPTED_FRACTION * wall)
        if preempted and self.threads == 1:
            self.rejected += 1
        else:
            self.times.append(wall / self.repeat)
            self.rounds.append(in_round)


def settle(threads: int) -> None:
    """Let the threads of whoever ran last park; a run on one thread has left none."""
    if threads > 1:
        time.sleep(PAUSE_S)


def lead(run_s: float) -> int:
    """Runs of so many seconds before one that finds the caches as a run of its own leaves them."""
    return 0 if run_s >= VERY_LONG_RUN_S else 1


def sample_cost(run_s: float, threads: int, is_cold: bool = False) -> float:
    """About how many seconds `interleave` spends on a sample of a run of `run_s` seconds.

    Without what emptying the caches takes.
    """
    if threads > 1:
        return max(run_s, SAMPLE_S) + PAUSE_S + run_s
    if is_cold:
        return max(run_s, SAMPLE_S)
    return max(run_s, SAMPLE_S) + lead(run_s) * run_s


def start(run: Run, threads: int = 1, cold: "ColdMode | None" = None) -> Samples:
    """Warm up, and choose the repeats so that a sample takes long enough to be timed.

    By the time that the thread had, on one: a run that is preempted is not a long one. Cold
    runs are repeated as often as there are copies of their operands.
    """
    return _started(run, threads, cold)[0]


def _started(run: Run, threads: int, cold: "ColdMode | None") -> tuple[Samples, float]:
    """What `start` says, and about how many seconds a run takes."""
    settle(threads)
    ran, wall = _ran(run, 1, threads)
    if cold is not None:
        return Samples(cold.copies, threads, evict=cold.evict), ran
    if ran >= LONG_RUN_S:
        return Samples(1, threads), ran
    repeat, passed, least_s = 1, 0.0, wall
    while True:
        ran, wall = _ran(run, repeat, threads)
        passed, least_s = passed + wall, min(least_s, wall / repeat)
        if ran >= SAMPLE_S / 2:
            run_s = ran / repeat
            return Samples(max(1, round(SAMPLE_S / run_s)), threads), run_s
        if passed > WAITING_S:
            return Samples(max(1, round(SAMPLE_S / least_s)), threads), least_s
        wanted = repeat * SAMPLE_S / max(ran, 1e-7)
        repeat = max(repeat * 2, int(min(wanted, repeat * WAITING_S / max(wall, 1e-7))))


def _ran(run: Run, repeat: int, threads: int) -> tuple[float, float]:
    """Seconds of so many runs: those that the thread had, on one, and those that passed."""
    wall, thread = time.perf_counter(), time.thread_time()
    run(repeat)
    thread, wall = time.thread_time() - thread, time.perf_counter() - wall
    return thread if threads == 1 else wall, wall


def measure(
    run: Run,
    budget_s: float,
    stop_above_s: float | None = None,
    threads: int = 1,
    samples: Samples | None = None,
    behind_s: float | None = None,
) -> tuple[Samples, bool]:
    """Time `run` until its interval is narrow, within about `budget_s`.

    Stops early once it is clearly above `stop_above_s`; one that is only behind gets few
    samples, for the rounds of the finals are not for it. When every sample was preempted,
    one is taken anyway, so that there is a number at all.

    Args:
        run: what to time.
        budget_s: seconds; slow or disturbed runs stretch it `PATIENCE` times at most.
        stop_above_s: what is no longer interesting.
        threads: how many a run uses.
        samples: as `start` or a caller that has warmed up made them; None starts here.
        behind_s: what is too slow for the finals, if that is known.

    Returns:
        The samples, and whether the measurement was stopped early.
    """
    samples = start(run, threads) if samples is None else samples
    begin, stopped = time.perf_counter(), False
    while len(samples.times) < MOST_SAMPLES:
        samples.take(run)
        kept, elapsed = len(samples.times), time.perf_counter() - begin
        if stop_above_s is not None and _is_hopeless(samples, stop_above_s):
            stopped = True
            break
        if behind_s is not None and kept >= FEW_SAMPLES and min(samples.times) > behind_s:
            break
        least = LEAST_SAMPLES if samples.least_s < VERY_LONG_RUN_S else FEW_SAMPLES
        if kept >= least and (elapsed > budget_s or is_narrow(samples.times)):
            break
        if elapsed > PATIENCE * budget_s and samples.taken >= DECIDE_AFTER:
            break
    if not samples.times:
        samples.times.append(_untested(run, samples.repeat))
    return samples, stopped


def _is_hopeless(samples: Samples, limit_s: float) -> bool:
    margin = 1.0 if samples.taken >= DECIDE_AFTER else OUT_OF_REACH
    return samples.least_s > margin * limit_s


def is_narrow(times: Sequence[float]) -> bool:
    """Whether half the 95% interval of the median is within `WIDTH` of the median."""
    ordered = sorted(times)
    low, high = median_interval(len(ordered))
    return ordered[high] - ordered[low] <= 2 * WIDTH * median(ordered)


def _untested(run: Run, repeat: int) -> float:
    begin = time.perf_counter()
    run(repeat)
    return (time.perf_counter() - begin) / repeat


def interleave(
    runs: Sequence[Run],
    rounds: int,
    threads: int = 1,
    cold: "ColdMode | None" = None,
    until: float | None = None,
) -> list[Samples]:
    """Time all runs in turn, `rounds` times, so that a drift of the machine meets them alike.

    Args:
        runs: the contenders.
        rounds: samples of each.
        threads: how many each of them uses.
        cold: how the caches are emptied before each sample; None measures hot.
        until: the moment of `time.monotonic` after which no further round begins; two are
            timed anyway.
    """
    all_samples = [_start_in_turn(run, threads, cold) for run in runs]
    order = list(range(len(runs)))
    for index in range(rounds):
        if until is not None and index >= DECIDE_AFTER and time.monotonic() > until:
            break
        if index and index % 2 == 0:  # nobody always comes after the same
            Random(index).shuffle(order)
        for i in order if index % 2 == 0 else reversed(order):
            settle(threads)
            if all_samples[i].lead:
                runs[i](all_samples[i].lead)
            all_samples[i].take(runs[i], index)
    for run, samples in zip(runs, all_samples, strict=True):
        if not samples.times:
            samples.times.append(_untested(run, samples.repeat))
            samples.rounds.append(rounds)
    return all_samples


def _start_in_turn(run: Run, threads: int, cold: "ColdMode | None") -> Samples:
    """Samples to be interleaved with others': each comes after an untimed run of its own.

    On several threads that is to wake them. Cold ones find nothing that a run has left.
    """
    samples, run_s = _started(run, threads, cold)
    if threads > 1:
        samples.lead = 1
    elif cold is None:
        samples.lead = lead(run_s)
    return samples


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
