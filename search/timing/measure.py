"""The timing protocol and its statistics.

On one thread, wall and thread time are read together. A sample was preempted if its wall time
exceeds its thread time without a voluntary context switch; its thread time counts. On a busy
machine nearly every sample of a long run is preempted, so none is discarded, and budgets count
thread time. The median is quoted with the distribution-free 95% interval between order statistics
(Le Boudec, Performance Evaluation of Computer and Communication Systems, 2010, section 2.2). Short
kernels repeat inside one sample. Sampling ends once the interval is as narrow as `WIDTH`, or the
budget is spent.

On several threads wall time counts, because no clock or counter shows preemption alike for all
contenders: blocked callers have no thread time, process time lags by a timer tick, and involuntary
context switches also count threads of the same run.

A hot run finds its operands in the caches, as in a loop. After a run of another kind it takes 0 to
6% longer, by schedule, so interleaved contenders each run once untimed before their sample. Cold
runs (`tilewise.search.timing.cold`) have caches emptied before every sample.

Threads that spin after a call would take cores from the next contender. So on several threads each
sample follows a pause, in which they park (`tilewise.search.runner.runner`), and an untimed run,
which wakes them; with cold caches it has operands of its own.
"""

import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from tilewise.search.timing.samples import (
    VERY_LONG_RUN_S,
    Run,
    Samples,
    is_narrow,
    settle,
    spent_s,
    start,
)

if TYPE_CHECKING:
    from tilewise.search.timing.cold import ColdMode

LEAST_SAMPLES, MOST_SAMPLES = 5, 25
PATIENCE = 3  # slow runs stretch the budget at most this many times
DECIDE_AFTER = 2
FEW_SAMPLES = 3  # enough of long runs, which average over what spreads short ones; and
# to place a run that is behind, well enough for a search
OUT_OF_REACH = 1.6  # times the limit, by a single sample: no second one is needed


def measure(
    run: Run,
    budget_s: float,
    stop_above_s: float | None = None,
    threads: int = 1,
    samples: Samples | None = None,
    behind_s: float | None = None,
) -> tuple[Samples, bool]:
    """Time `run` until its interval is narrow; return samples, and whether they stopped early.

    That takes about `budget_s` of `spent_s`, and up to `PATIENCE` times as long for slow runs. It
    stops if the run is clearly slower than `stop_above_s`, and takes few samples of one slower than
    `behind_s`, which is no finalist. Without `samples` of a warm run it starts here.
    """
    samples = start(run, threads) if samples is None else samples
    begin, stopped = spent_s(threads), False
    while len(samples.times) < MOST_SAMPLES:
        samples.take(run)
        taken, elapsed = len(samples.times), spent_s(threads) - begin
        if stop_above_s is not None and is_hopeless(taken, samples.least_s, stop_above_s):
            stopped = True
            break
        if behind_s is not None and taken >= FEW_SAMPLES and min(samples.times) > behind_s:
            break
        least = LEAST_SAMPLES if samples.least_s < VERY_LONG_RUN_S else FEW_SAMPLES
        if taken >= least and (elapsed > budget_s or is_narrow(samples.times)):
            break
        if elapsed > PATIENCE * budget_s and taken >= DECIDE_AFTER:
            break
    return samples, stopped


def is_hopeless(samples: int, least: float, limit: float) -> bool:
    """Return whether the least of some samples is clearly above a limit."""
    return least > (1.0 if samples >= DECIDE_AFTER else OUT_OF_REACH) * limit


def interleave(
    runs: Sequence[Run],
    rounds: int,
    threads: int = 1,
    cold: "ColdMode | None" = None,
    until: float | None = None,
) -> list[Samples]:
    """Time all runs in turn, so that drift of the machine affects them alike.

    No round but the first two begins after `until`, a moment of `time.monotonic`.
    """
    all_samples = [start(run, threads, cold) for run in runs]
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
    return all_samples
