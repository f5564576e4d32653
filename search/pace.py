"""The machine's pace, read from a control: a candidate whose time is known, run once more.

Who else runs on a shared machine, on the other half of a core or by its clock, makes everything
take up to half as long again, for seconds on end, and no clock of this process tells that from a
slow schedule. A schedule like the candidate meets the same. So one that has been timed before (the
control) is timed in turn with each candidate; what counts is the median of their ratios, and
the candidate's time is told at the pace at which the control has always run. (A control in
every block: Box, Hunter and Hunter, Statistics for Experimenters, 2005, chapter 4.)

Of many candidates the one that seems the fastest is also a lucky one, and the next would be told
too fast by as much if it became the control by that; over hundreds of trials the pace would run
away. So the control stays until a candidate is clearly faster, which is then timed once more; the
second time alone counts. Nor does one take over at an unusual pace: others may slow the two by
different amounts, and what is wrong of the known time would be wrong of every pace after it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
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

WORTH = 0.93  # of the control's time: more than luck; a candidate as fast takes its place
STEADY = 0.03  # between the ratios of rounds: more than they spread while the pace stays
MOST_ROUNDS = 9


def is_usual(pace: float, others: Sequence[float]) -> bool:
    """Whether the machine ran about as it did in most other trials; so it did in the first."""
    return not others or abs(log(pace / median(others))) < STEADY


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
class Bounds:
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
        pace: of the machine meanwhile: how many times longer than usual everything took. The
            samples' median over it is the candidate's time. None where nothing told it.
        takes_over: whether it may be the control: it was clearly faster at both looks, the
            second of which its pace is of.
    """

    samples: Samples
    stopped: bool
    pace: float | None
    takes_over: bool = False


def measure_beside(
    control: Control, run: Run, samples: Samples, limits: Bounds, budget_s: float
) -> Paced:
    """Time a candidate in turn with the control.

    Args:
        control: what the pace is read from.
        run: the candidate, warmed up.
        samples: of it, as `search.measure.start` made them; of a very long run with its first.
        limits: from where fewer samples do.
        budget_s: seconds of one look; slow or disturbed runs stretch it `PATIENCE` times at most.
    """
    turns = _Turns(control, run, samples, limits)
    turns.take_all(budget_s)
    if turns.ratio >= WORTH:
        return turns.outcome(samples)
    second = _Turns(control, run, Samples(samples.repeat), limits)
    second.take_all(budget_s)
    samples.times += second.samples.times
    samples.rejected += second.samples.rejected
    return second.outcome(samples, takes_over=second.ratio < WORTH)


@dataclass
class _Turns:
    """A candidate and the control in turn, each of them first in every other round.

    Attributes:
        rounds: how many were taken.
        ratios: of the rounds in which neither was preempted.
    """

    control: Control
    run: Run
    samples: Samples
    limits: Bounds
    rounds: int = 0
    ratios: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._of_control = Samples(self.control.repeat)

    def take_all(self, budget_s: float) -> None:
        """Rounds until they tell what they can."""
        begin = time.perf_counter()
        while not self._are_enough(time.perf_counter() - begin, budget_s):
            self._take()

    def _take(self) -> None:
        """One round, and its ratio unless one of the two was preempted.

        What a very long run loses of the caches meanwhile is little beside it, and another one
        costs as much as a whole trial: its ratio is that of the threads' times.
        """
        turns = [(self.samples, self.run), (self._of_control, self.control.run)]
        for samples, run in turns if self.rounds % 2 == 0 else turns[::-1]:
            if self.rounds not in samples.rounds:  # else its check was the sample
                samples.take(run, self.rounds)
        if all(samples.rounds[-1:] == [self.rounds] for samples, _ in turns):
            self.ratios.append(self.samples.times[-1] / self._of_control.times[-1])
        elif min(samples.least_s for samples, _ in turns) >= VERY_LONG_RUN_S:
            self.ratios.append(self.samples.last_s / self._of_control.last_s)
        self.rounds += 1

    def _are_enough(self, elapsed_s: float, budget_s: float) -> bool:
        ratios, is_late = self.ratios, elapsed_s > PATIENCE * budget_s
        if self.rounds == MOST_ROUNDS or (is_late and self.rounds >= FEW_SAMPLES):
            return True
        if self._is_hopeless:
            return True
        if len(ratios) < DECIDE_AFTER:
            return False
        is_minor = min(ratios) * self.control.seconds > self.limits.behind_s
        if is_minor or self.samples.least_s >= VERY_LONG_RUN_S:
            is_alike = max(ratios) < (1 + STEADY) * min(ratios)
            return is_alike or len(ratios) >= FEW_SAMPLES
        return len(ratios) >= LEAST_SAMPLES and (elapsed_s > budget_s or is_narrow(ratios))

    @property
    def _is_hopeless(self) -> bool:
        margin = 1.0 if len(self.ratios) >= DECIDE_AFTER else OUT_OF_REACH
        limit = margin * self.limits.stop_above_s / self.control.seconds
        return bool(self.ratios) and min(self.ratios) > limit

    @property
    def ratio(self) -> float:
        """The candidate's time over the control's; the threads', if every round was preempted."""
        if not self.ratios:
            return self.samples.least_s / self._of_control.least_s
        return median(self.ratios)

    def outcome(self, samples: Samples, takes_over: bool = False) -> Paced:
        """What came of it, for all samples that were taken of the candidate."""
        if not samples.times:
            samples.times.append(self.samples.least_s)
        pace = median(samples.times) / (self.ratio * self.control.seconds)
        return Paced(samples, self._is_hopeless, pace, takes_over)
