"""The machine's pace, read from a control: a candidate whose time is known, run once more.

Who else runs on a shared machine, on the other half of a core or by its clock, makes everything
take up to half as long again, for seconds on end, and no clock of this process tells that from a
slow schedule. A schedule like the candidate meets the same. So one that has been timed before (the
control) is timed before and after each candidate, and the candidate's time is told at the pace at
which the control has always run. Where the control's two times differ, or the candidate may be
among the best, both are timed in turn, and what counts is the median of their ratios. (A control in
every block: Box, Hunter and Hunter, Statistics for Experimenters, 2005, chapter 4.)
"""

import time
from dataclasses import dataclass, field
from statistics import median

from search.measure import (
    DECIDE_AFTER,
    FEW_SAMPLES,
    LEAST_SAMPLES,
    OUT_OF_REACH,
    PATIENCE,
    VERY_LONG_RUN_S,
    Run,
    Samples,
    is_narrow,
)

STEADY = 0.03  # between two ratios: more than they spread while the pace stays
MOST_TURNS = 14


@dataclass(frozen=True)
class Control:
    """A run whose time is known.

    Attributes:
        run: it.
        seconds: what one takes at pace 1.
        repeat: runs in one sample.
    """

    run: Run
    seconds: float
    repeat: int


@dataclass(frozen=True)
class Limits:
    """What a candidate's time means, in seconds at pace 1.

    Attributes:
        stop_above_s: what is no longer interesting.
        behind_s: what the finals will not have.
    """

    stop_above_s: float
    behind_s: float


@dataclass(frozen=True)
class Paced:
    """What came of timing a candidate beside a control.

    Attributes:
        samples: of the candidate, as they were.
        stopped: whether it was given up early.
        pace: of the machine meanwhile: how many times longer than usual the control took. The
            samples' median over it is the candidate's time.
    """

    samples: Samples
    stopped: bool
    pace: float


def measure_beside(
    control: Control, run: Run, samples: Samples, limits: Limits, budget_s: float
) -> Paced:
    """Time a candidate in turn with the control.

    Args:
        control: what the pace is read from.
        run: the candidate, warmed up.
        samples: of it, as `search.measure.start` made them; of a very long run with its first.
        limits: from where fewer samples do.
        budget_s: seconds; slow or disturbed runs stretch it `PATIENCE` times at most.
    """
    turns = _Turns(control, run, samples, limits)
    begin = time.perf_counter()
    while not turns.are_enough(time.perf_counter() - begin, budget_s):
        turns.take()
    return turns.outcome()


@dataclass
class _Turns:
    """A candidate and the control in turn; of every two neighbours there is a ratio."""

    control: Control
    run: Run
    samples: Samples
    limits: Limits
    turns: int = 0
    ratios: list[float] = field(default_factory=list)
    _last: tuple[Samples, float] | None = None

    def __post_init__(self) -> None:
        self._its = Samples(self.control.repeat)
        self._is_own_next = not self.samples.times  # else its check was the first turn
        if self.samples.times:
            self._last = self.samples, self.samples.times[-1]

    def take(self) -> None:
        """One sample of whose turn it is."""
        samples, run = self._its, self.control.run
        if self._is_own_next:
            samples, run = self.samples, self.run
        before = samples.rejected
        samples.take(run)
        if samples.rejected == before:
            self._compare(samples)
        self._is_own_next = not self._is_own_next
        self.turns += 1

    def _compare(self, samples: Samples) -> None:
        """The ratio to the neighbour before, unless one was preempted in between."""
        seconds = samples.times[-1]
        if self._last is not None and self._last[0] is not samples:
            other = self._last[1]
            self.ratios.append(seconds / other if samples is self.samples else other / seconds)
        self._last = samples, seconds

    def are_enough(self, elapsed_s: float, budget_s: float) -> bool:
        """Whether the ratios tell what they can."""
        ratios = self.ratios
        if self.turns >= MOST_TURNS or elapsed_s > PATIENCE * budget_s or self._is_hopeless:
            return True
        if len(ratios) < DECIDE_AFTER:
            return False
        is_minor = min(ratios) * self.control.seconds > self.limits.behind_s
        if is_minor or self.samples.least_s >= VERY_LONG_RUN_S:
            last = ratios[-DECIDE_AFTER:]
            return max(last) < (1 + STEADY) * min(last) or len(ratios) >= FEW_SAMPLES
        return len(ratios) >= LEAST_SAMPLES and (elapsed_s > budget_s or is_narrow(ratios))

    @property
    def _is_hopeless(self) -> bool:
        margin = 1.0 if len(self.ratios) >= DECIDE_AFTER else OUT_OF_REACH
        limit = margin * self.limits.stop_above_s / self.control.seconds
        return bool(self.ratios) and min(self.ratios) > limit

    def outcome(self) -> Paced:
        """What came of it; at the usual pace where no two neighbours were left."""
        if not self.samples.times:
            self.samples.times.append(self.samples.least_s)
        if not self.ratios:
            return Paced(self.samples, False, 1.0)
        pace = median(self.samples.times) / (median(self.ratios) * self.control.seconds)
        return Paced(self.samples, self._is_hopeless, pace)
