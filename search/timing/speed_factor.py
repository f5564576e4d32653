"""The machine's pace, read from a control: a candidate whose time is known, run once more.

Who else runs on a shared machine, on the other half of a core or by its clock, makes everything
take up to half as long again, for seconds on end, and no clock of this process tells that from a
slow schedule. A schedule like the candidate meets the same. So one that has been timed before (the
control) is timed in turn with each candidate; what counts is their ratio, and
the candidate's time is told at the pace at which the control has always run. (A control in
every block: Box, Hunter and Hunter, Statistics for Experimenters, 2005, chapter 4.)

A run of many milliseconds averages over what comes and goes within one, and the median of the
ratios of neighbours in time is the best that can be had. Ones of less than 2 ms either meet it or
do not: there the fastest fifth of each side tell the ratio. Those between are told by both, whose
errors have little in common. Who was preempted makes no difference, since the time of a preempted
sample is its thread's. And who ran before makes a difference of up to 6%, not the same for
all, since each has its own code and panels in the caches: so what is short enough runs twice in
each turn, and the fastest are those that found the caches as they had left them.

Of many candidates the one that seems the fastest is also a lucky one, and the next would be told
too fast by as much if it became the control by that; over hundreds of trials the pace would run
away. So the control stays until a candidate is clearly faster, which is then timed once more; the
second time alone counts. Nor does one take over at an unusual pace: others may slow the two by
different amounts, and what is wrong of the known time would be wrong of every pace after it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import log, sqrt
from statistics import fmean, median
from typing import ClassVar

from tilewise.search.timing.measure import (
    DECIDE_AFTER,
    FEW_SAMPLES,
    LEAST_SAMPLES,
    OUT_OF_REACH,
    PATIENCE,
)
from tilewise.search.timing.samples import (
    LONG_RUN_S,
    VERY_LONG_RUN_S,
    WIDTH,
    Run,
    Samples,
    is_narrow,
    spent_s,
)

WORTH = 0.93  # of the control's time: more than luck; a candidate as fast takes its place
STEADY = 0.03  # between the ratios of rounds: more than they spread while the pace stays
FASTER = log(1.1)  # of paces below 1, from which they are more than the error of a trial
UNDISTURBED_SHARE = 0.1  # of all paces
LEAST_UNDISTURBED = 3  # paces that have to agree; fewer may be errors


def undisturbed_factor(paces: Sequence[float]) -> float:
    """Return the pace of the undisturbed machine as far as paces show it; 1 unless it is lower."""
    if len(paces) < LEAST_UNDISTURBED:
        return 1.0
    found = sorted(paces)[max(LEAST_UNDISTURBED - 1, int(UNDISTURBED_SHARE * len(paces)))]
    return found if -log(found) > FASTER else 1.0


def spread(paces: Sequence[float]) -> float:
    """Return how far paces lie apart, the outer tenths left out, as a logarithm; 0 of few."""
    if len(paces) < LEAST_UNDISTURBED:
        return 0.0
    ordered, tail = sorted(paces), int(UNDISTURBED_SHARE * len(paces))
    return log(ordered[-1 - tail] / ordered[tail])


def is_usual(pace: float, others: Sequence[float]) -> bool:
    """Whether the machine ran about as it did in most other trials; so it did in the first."""
    return not others or is_near(pace, median(others))


def is_near(pace: float, usual: float) -> bool:
    """Whether two paces differ by no more than rounds do while the pace stays."""
    return abs(log(pace / usual)) < STEADY


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


MOST_ROUNDS = 9
TWICE = 2  # samples of a short run in one turn: the first of them meets what the other side left
LEAST_SHORT_ROUNDS, MOST_SHORT_ROUNDS = 4, 10
FASTEST = 0.2  # of a side's samples


def fastest(seconds: Iterable[float]) -> float:
    """The mean of the fastest fifth: of one, where there are fewer than eight."""
    ordered = sorted(seconds)
    return fmean(ordered[: max(1, round(FASTEST * len(ordered)))])


def measure_beside(
    control: Control, run: Run, samples: Samples, limits: Bounds, budget_s: float
) -> Paced:
    """Time a candidate in turn with the control.

    Args:
        control: what the pace is read from.
        run: the candidate, warmed up.
        samples: of it, as `tilewise.search.timing.samples.start` made them; of a very long run with
            its first.
        limits: from where fewer samples do.
        budget_s: seconds of the thread for one look; slow runs stretch it `PATIENCE` times at most.
    """
    kind, repeat = _Turns, samples.repeat
    if 2 * TWICE * FEW_SAMPLES * control.seconds <= budget_s:
        kind = _ShortTurns if control.seconds < LONG_RUN_S else _MiddleTurns
        repeat = _halved(repeat)
    begun = replace(
        samples, repeat=repeat, times=[*samples.times], rounds=[*samples.rounds]
    )  # the caller's stay as they are
    turns = kind(control, run, begun, limits)
    turns.take_all(budget_s)
    if turns.ratio >= WORTH:
        return turns.outcome(turns.samples)
    second = kind(control, run, Samples(repeat), limits)
    second.take_all(budget_s)
    both = replace(
        turns.samples,
        times=turns.samples.times + second.samples.times,
        preempted=turns.samples.preempted + second.samples.preempted,
    )
    return second.outcome(both, takes_over=second.ratio < WORTH)


@dataclass
class _Turns:
    """A candidate and the control in turn, each of them first in every other round.

    Attributes:
        rounds: how many were taken.
        ratios: of the rounds.
    """

    control: Control
    run: Run
    samples: Samples
    limits: Bounds
    rounds: int = 0
    ratios: list[float] = field(default_factory=list)

    most: ClassVar[int] = MOST_ROUNDS

    def __post_init__(self) -> None:
        self._of_control = Samples(self.control.repeat)

    @property
    def _sides(self) -> list[tuple[Samples, Run]]:
        """Whose samples are taken, in the order of the round's turns."""
        sides = [(self.samples, self.run), (self._of_control, self.control.run)]
        return sides if self.rounds % 2 == 0 else sides[::-1]

    def take_all(self, budget_s: float) -> None:
        """Rounds until they tell what they can."""
        begin = spent_s(1)
        while not self._are_enough(spent_s(1) - begin, budget_s):
            self._take()

    def _take(self) -> None:
        """Take one round, and its ratio."""
        for samples, run in self._sides:
            if self.rounds not in samples.rounds:  # else its check was the sample
                samples.take(run, self.rounds)
        self.ratios.append(self.samples.last_s / self._of_control.last_s)
        self.rounds += 1

    def _are_enough(self, elapsed_s: float, budget_s: float) -> bool:
        ratios, is_late = self.ratios, elapsed_s > PATIENCE * budget_s
        if self.rounds == self.most or (is_late and self.rounds >= FEW_SAMPLES):
            return True
        if self._is_hopeless:
            return True
        if len(ratios) < DECIDE_AFTER:
            return False
        is_minor = min(ratios) * self.control.seconds > self.limits.behind_s
        if is_minor or self.samples.least_s >= VERY_LONG_RUN_S:
            is_alike = max(ratios) < (1 + STEADY) * min(ratios)
            return is_alike or (is_minor and len(ratios) >= FEW_SAMPLES)
        return self._are_alike(is_over=elapsed_s > budget_s)

    def _are_alike(self, is_over: bool) -> bool:
        """Whether rounds tell a ratio well enough, or as well as a budget lets them."""
        return len(self.ratios) >= LEAST_SAMPLES and (is_over or is_narrow(self.ratios))

    @property
    def _is_hopeless(self) -> bool:
        margin = 1.0 if len(self.ratios) >= DECIDE_AFTER else OUT_OF_REACH
        limit = margin * self.limits.stop_above_s / self.control.seconds
        return bool(self.ratios) and min(self.ratios) > limit

    @property
    def ratio(self) -> float:
        """The candidate's time over the control's."""
        return self._of(slice(None))

    def _of(self, rounds: slice) -> float:
        """Return the ratio that some rounds tell."""
        return median(self.ratios[rounds])

    def outcome(self, samples: Samples, takes_over: bool = False) -> Paced:
        """What came of it, for all samples that were taken of the candidate."""
        pace = median(samples.times) / (self.ratio * self.control.seconds)
        return Paced(samples, self._is_hopeless, pace, takes_over)


@dataclass
class _ShortTurns(_Turns):
    """Of runs of less than `LONG_RUN_S`: twice in each turn, and the fastest fifth count.

    What is kept of the candidate are the second of each turn.
    """

    most: ClassVar[int] = MOST_SHORT_ROUNDS

    def __post_init__(self) -> None:
        self._of_control = Samples(_halved(self.control.repeat))
        self._ran: list[list[float]] = []  # by round, in seconds of the thread
        self._control_ran: list[list[float]] = []

    def _take(self) -> None:
        for samples, run in self._sides:
            ran = self._control_ran if samples is self._of_control else self._ran
            ran.append(self._turn(samples, run))
        self.ratios.append(min(self._ran[-1]) / min(self._control_ran[-1]))
        self.rounds += 1

    def _turn(self, samples: Samples, run: Run) -> list[float]:
        """Seconds of a run of each of two samples in a row."""
        if self.rounds in samples.rounds:  # its check was the sample
            return [samples.last_s]
        first = Samples(samples.repeat)
        first.take(run)
        samples.take(run, self.rounds)
        return [first.last_s, samples.last_s]

    def _are_alike(self, is_over: bool) -> bool:
        if self.rounds < LEAST_SHORT_ROUNDS or self.rounds % 2:
            return False
        halves = self._of(slice(0, None, 2)), self._of(slice(1, None, 2))
        return is_over or abs(log(halves[0] / halves[1])) < WIDTH

    def _of(self, rounds: slice) -> float:
        return fastest(chain(*self._ran[rounds])) / fastest(chain(*self._control_ran[rounds]))


@dataclass
class _MiddleTurns(_ShortTurns):
    """Of longer runs, `FEW_SAMPLES` rounds of which fit a budget: ratios of rounds count, too.

    They are those of the shorter run of each turn.
    """

    def _of(self, rounds: slice) -> float:
        return sqrt(super()._of(rounds) * median(self.ratios[rounds]))


def _halved(repeat: int) -> int:
    """Runs in one of two samples that take about as long as one of `repeat` runs."""
    return -(-repeat // TWICE)
