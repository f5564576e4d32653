"""The timing protocol and its statistics.

On one thread, wall and thread time are read together. A preempted sample shows wall time
above thread time without a voluntary context switch; its thread time counts. On a busy machine
nearly every sample of a long run is preempted, so to discard them would leave nothing to rank by.
Budgets count thread time for the same reason. The median is quoted, with the distribution-free 95%
interval between order statistics (Le Boudec, Performance Evaluation of Computer and
Communication Systems, 2010, section 2.2). Short kernels are repeated inside one sample.

On several threads wall time counts, and the median alone stands against preemption,
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
untimed before its sample. A cold one (`tilewise.search.timing.cold`) has them evicted before every
sample, which then is of a single run; several copies of the operands take part in turn where one
run is too short to time.

Threads that spin after a call would take cores from whoever is timed next. So in rounds
on several threads each sample comes after a pause, in which they park
(`tilewise.search.runner.runner` has them do so in time), and one run untimed, which wakes its own.
"""

import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from tilewise.search.timing.samples import VERY_LONG_RUN_S, Run, Samples, is_narrow, spent_s, start

if TYPE_CHECKING:
    from tilewise.search.timing.cold import ColdMode
from tilewise.search.timing.samples import leading_runs, settle, started

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
    """Time `run` until its interval is narrow, within about `budget_s`.

    Stops early once it is clearly above `stop_above_s`; one that is only behind gets few
    samples, for the rounds of the finals are not for it.

    Args:
        run: what to time.
        budget_s: seconds of `spent_s`; slow runs stretch it `PATIENCE` times at most.
        stop_above_s: what is no longer interesting.
        threads: how many a run uses.
        samples: as `start` or a caller that has warmed up made them; None starts here.
        behind_s: what is too slow for the finals, if that is known.

    Returns:
        The samples, and whether the measurement was stopped early.
    """
    samples = start(run, threads) if samples is None else samples
    begin, stopped = spent_s(threads), False
    while len(samples.times) < MOST_SAMPLES:
        samples.take(run)
        taken, elapsed = len(samples.times), spent_s(threads) - begin
        if stop_above_s is not None and _is_hopeless(samples, stop_above_s):
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


def _is_hopeless(samples: Samples, limit_s: float) -> bool:
    margin = 1.0 if len(samples.times) >= DECIDE_AFTER else OUT_OF_REACH
    return samples.least_s > margin * limit_s


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
    return all_samples


def _start_in_turn(run: Run, threads: int, cold: "ColdMode | None") -> Samples:
    """Samples to be interleaved with others': each comes after untimed runs of its own.

    On several threads that is to wake them. Cold ones find nothing that a run has left.
    """
    samples, run_s = started(run, threads, cold)
    if threads > 1:
        samples.lead = 1
    elif cold is None:
        samples.lead = leading_runs(run_s)
    return samples
