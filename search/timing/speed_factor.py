"""The machine's speed factor, read from a control: a run with known time.

Other load on a shared machine, or its clock, makes everything up to half as slow again for seconds,
which no clock of this process shows. It affects similar schedules alike. So a schedule that was
timed before (the control) is timed in turn with each candidate, and the ratio of both counts. (A
control in every block: Box, Hunter and Hunter, Statistics for Experimenters, 2005, chapter 4.)

Long runs average over disturbances: the median of neighbours' ratios counts. Runs below 2 ms are
either disturbed or not: the fastest fifth of each side give the ratio. Runs between use both.
Preemption does not matter, because thread time counts. The previous run of another kind matters up
to 6%, so short runs take two samples per turn.

The fastest candidate is also a lucky one; as a control it would make later ones seem faster, and
the factor would drift over hundreds of trials. So the control only changes for a clearly faster
candidate, which is timed once more and counted by that second time, and never at an unusual factor,
because load may slow the two differently.
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
    PATIENCE,
    is_hopeless,
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
STEADY = 0.03  # between the ratios of rounds: more than they spread while the speed_factor stays
FASTER = log(1.1)  # of speed_factors below 1, from which they are more than the error of a trial
UNDISTURBED_SHARE = 0.1  # of all speed_factors
LEAST_UNDISTURBED = 3  # speed_factors that have to agree; fewer may be errors


def undisturbed_factor(speed_factors: Sequence[float]) -> float:
    """Return the factor of the undisturbed machine; 1 unless it is clearly lower."""
    if len(speed_factors) < LEAST_UNDISTURBED:
        return 1.0
    found = sorted(speed_factors)[
        max(LEAST_UNDISTURBED - 1, int(UNDISTURBED_SHARE * len(speed_factors)))
    ]
    return found if -log(found) > FASTER else 1.0


def spread(speed_factors: Sequence[float]) -> float:
    """Return the spread of factors without the outer tenths, as a logarithm; 0 for few."""
    if len(speed_factors) < LEAST_UNDISTURBED:
        return 0.0
    ordered, tail = sorted(speed_factors), int(UNDISTURBED_SHARE * len(speed_factors))
    return log(ordered[-1 - tail] / ordered[tail])


def is_usual(speed_factor: float, others: Sequence[float]) -> bool:
    """Return whether the machine ran as in most other trials."""
    return not others or is_near(speed_factor, median(others))


def is_near(speed_factor: float, usual: float) -> bool:
    """Return whether two factors differ by no more than undisturbed rounds do."""
    return abs(log(speed_factor / usual)) < STEADY


@dataclass(frozen=True)
class Control:
    """A run with known seconds at factor 1, and its repeats in one sample."""

    run: Run
    seconds: float
    repeat: int


@dataclass(frozen=True)
class Bounds:
    """Times of a candidate, in seconds at factor 1.

    Above `stop_above_s` it is uninteresting; above `behind_s` it cannot reach the final benchmark.
    """

    stop_above_s: float
    behind_s: float


@dataclass(frozen=True)
class ControlledTiming:
    """The outcome of timing a candidate in the rounds of a control.

    Attributes:
        samples: of the candidate, as measured.
        stopped: whether they were stopped early.
        speed_factor: of the machine; the samples' median over it is the candidate's time. None if
            unknown.
        takes_over: whether it may become the control: it was clearly faster twice, and the factor
            is of the second time.
    """

    samples: Samples
    stopped: bool
    speed_factor: float | None
    takes_over: bool = False


MOST_ROUNDS = 9
TWICE = 2  # samples of a short run in one turn: the first of them meets what the other side left
LEAST_SHORT_ROUNDS, MOST_SHORT_ROUNDS = 4, 10
FASTEST = 0.2  # of a side's samples


def fastest(seconds: Iterable[float]) -> float:
    """Return the mean of the fastest fifth, of one at least."""
    ordered = sorted(seconds)
    return fmean(ordered[: max(1, round(FASTEST * len(ordered)))])


def measure_with_control(
    control: Control, run: Run, samples: Samples, limits: Bounds, budget_s: float
) -> ControlledTiming:
    """Time a warm candidate in turn with the control.

    `samples` are those of `tilewise.search.timing.samples.start`; of a very long run they include
    its first. `budget_s` is the thread's time for one look, stretched up to `PATIENCE` times.
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
    """A candidate and the control in turn; each is first in every other round."""

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
        """Both sides in the order of the round."""
        sides = [(self.samples, self.run), (self._of_control, self.control.run)]
        return sides if self.rounds % 2 == 0 else sides[::-1]

    def take_all(self, budget_s: float) -> None:
        """Take rounds until they are conclusive."""
        begin = spent_s(1)
        while not self._are_enough(spent_s(1) - begin, budget_s):
            self._take()

    def _take(self) -> None:
        """Take one round and its ratio."""
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
        """Return whether the ratio is precise enough, or the budget is spent."""
        return len(self.ratios) >= LEAST_SAMPLES and (is_over or is_narrow(self.ratios))

    @property
    def _is_hopeless(self) -> bool:
        limit = self.limits.stop_above_s / self.control.seconds
        return bool(self.ratios) and is_hopeless(len(self.ratios), min(self.ratios), limit)

    @property
    def ratio(self) -> float:
        """The candidate's time over the control's."""
        return self._of(slice(None))

    def _of(self, rounds: slice) -> float:
        """Return the ratio of some rounds."""
        return median(self.ratios[rounds])

    def outcome(self, samples: Samples, takes_over: bool = False) -> ControlledTiming:
        """Return the outcome with all samples of the candidate."""
        speed_factor = median(samples.times) / (self.ratio * self.control.seconds)
        return ControlledTiming(samples, self._is_hopeless, speed_factor, takes_over)


@dataclass
class _ShortTurns(_Turns):
    """Turns below `LONG_RUN_S`: two samples each, of which the fastest fifth count.

    The second sample of each turn is kept for the candidate.
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
        """Return seconds of a run in each of two consecutive samples."""
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
    """Turns of longer runs, which also use the ratios of rounds."""

    def _of(self, rounds: slice) -> float:
        return sqrt(super()._of(rounds) * median(self.ratios[rounds]))


def _halved(repeat: int) -> int:
    """Return the runs in each of two samples that replace one of `repeat` runs."""
    return -(-repeat // TWICE)
