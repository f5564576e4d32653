"""Time two schedules in turn, in several processes, until a verdict is clear."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median, stdev
from typing import Any

from tilewise.search.final_benchmark.rounds import LEAST_GROUPS, student
from tilewise.search.runner.protocol import FinalistsReply
from tilewise.search.runner.runner import Runner
from tilewise.search.verdicts import Verdict, verdict

PLACEMENTS = 5  # of the buffers, in each process; one of slow calls
ROUNDS = 40  # on each of them, at most
LOOKS = (2, 6)  # processes after which a clear verdict is accepted
PROCESS_S = 3.0  # at most, in each process


@dataclass(frozen=True)
class PairTiming:
    """The speed of the second schedule over that of the first, with its 95% interval."""

    ratio: float
    interval: tuple[float, float]
    processes: int

    def verdict(self, tolerance: float) -> Verdict:
        """Return the verdict on the second schedule."""
        return verdict(*self.interval, tolerance)


def time_pair(
    runner: Runner,
    base: Sequence[Any],
    new: Sequence[Any],
    tolerance: float,
    seconds: float | None = None,
) -> PairTiming:
    """Time the steps of two schedules in turn; no process starts after `seconds`.

    At least two processes are used, since the placement of code and buffers moves kernels, and
    three of slow calls. A look after each would accept chance as a verdict more often. Raises as
    `Runner.time_finalists`, also for a schedule that is wrong.
    """
    end = None if seconds is None else time.monotonic() + seconds
    medians, has_looked = list[float](), False
    for process in range(1, LOOKS[-1] + 1):
        if process > 1:
            runner.renew()
        reply = runner.time_finalists([list(base), list(new)], ROUNDS, False, PLACEMENTS, PROCESS_S)
        medians += placement_ratios(reply)
        if process < LOOKS[0] or len(medians) < LEAST_GROUPS:
            continue
        timing = _timing(medians, process)
        is_look = not has_looked or process == LOOKS[-1]
        is_decided = is_look and timing.verdict(tolerance) is not Verdict.UNDECIDED
        has_looked = True
        if is_decided or (end is not None and time.monotonic() >= end):
            break
    return timing


def placement_ratios(reply: FinalistsReply) -> list[float]:
    """Return the logarithm of the median ratio of speeds on each placement."""
    first, second = reply.finalists
    return [
        median(log(a / b) for a, b in zip(base, new, strict=True))
        for base, new in zip(first.times, second.times, strict=True)
    ]


def _timing(medians: Sequence[float], processes: int) -> PairTiming:
    """Return the mean over placements with Student's interval."""
    middle = fmean(medians)
    reach = student(len(medians)) * stdev(medians) / sqrt(len(medians))
    return PairTiming(exp(middle), (exp(middle - reach), exp(middle + reach)), processes)
