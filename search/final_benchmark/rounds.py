"""Contenders timed in turn, round by round: who stands best, and what is quoted of whom.

A machine that is shared goes through good seconds and bad ones, and medians of contenders that
are alike then say which of them met more of the good. Within a round all meet the same. So
what each took is split into a part of its own, by which they are ranked, and the level of the
round, in a randomised block design (Box, Hunter and Hunter, Statistics for Experimenters, 2005,
chapter 4). The levels also tell the good rounds from the bad: what is quoted is the median of
the undisturbed ones, and how far levels reach from there goes into the interval.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, hypot, inf, log, sqrt
from statistics import fmean, median, stdev

from tilewise.kernels.statistics import median_interval
from tilewise.search.records import Measurement
from tilewise.search.runner.protocol import FinalsReply, TimedInTurn
from tilewise.search.timing.measure import LEAST_SAMPLES
from tilewise.search.timing.samples import summarise

PLACEMENT_ROUNDS = 500
"""More than are timed on a placement; its rounds are counted from a multiple of this."""
UNDISTURBED = log(1.05)  # above the level of the least disturbed rounds
UNDISTURBED_SHARE = 0.1  # of all rounds: the level of so many is not luck
ENOUGH_TO_RANK = 10  # undisturbed rounds; of fewer, all count
LEAST_GROUPS = 3
LEAST_IN_GROUP = 3
POLISHED = 6  # times, until neither part moves
WINDOW = 5  # rounds of which a level is the median, as a trial's pace is of about as many
T_95 = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262, 12: 2.201}
"""Student's t at 97.5%, by the number of groups."""

ByRound = dict[int, float]


@dataclass(frozen=True)
class Rounds:
    """Samples of contenders.

    Attributes:
        contenders: for each the seconds that a run took, by the number of the round. Rounds of
            different placements of the buffers differ in the quotient of their number by
            `PLACEMENT_ROUNDS`.
    """

    contenders: tuple[ByRound, ...]

    @cached_property
    def _logs(self) -> list[ByRound]:
        """Logarithms of the times, in rounds that at least half of the contenders have."""
        count = Counter(at for one in self.contenders for at in one)
        kept = {at for at, have in count.items() if 2 * have >= len(self.contenders)}
        return [{at: log(t) for at, t in one.items() if at in kept} for one in self.contenders]

    @cached_property
    def _fit(self) -> tuple[list[float], ByRound]:
        """Logarithms for contenders and for rounds that add up to their times.

        By median polish, for which no round has to be complete (Tukey, Exploratory Data
        Analysis, 1977, chapter 11).
        """
        logs, levels = self._logs, dict.fromkeys(sorted(set().union(*self._logs)), 0.0)
        own = [0.0] * len(logs)
        for _ in range(POLISHED):
            own = [median(one[at] - levels[at] for at in one) if one else inf for one in logs]
            for at in levels:
                levels[at] = median(
                    one[at] - mine for one, mine in zip(logs, own, strict=True) if at in one
                )
        return own, levels

    @property
    def levels(self) -> ByRound:
        """Of each round that most contenders have, the logarithm of how slow everything was."""
        return self._fit[1]

    @cached_property
    def undisturbed(self) -> set[int]:
        """The rounds whose level is near the least; all, where few are shared or one is alone."""
        if len(self.levels) < LEAST_SAMPLES or len(self.contenders) < 2:
            return set().union(*self.contenders)
        ordered = sorted(self.levels.values())
        least = ordered[max(LEAST_SAMPLES, int(UNDISTURBED_SHARE * len(ordered))) - 1]
        return {at for at, level in self.levels.items() if level <= least + UNDISTURBED}

    @property
    def disturbed(self) -> int:
        """How many rounds were disturbed."""
        return len(set(self.levels) - self.undisturbed)

    @cached_property
    def standings(self) -> list[float]:
        """For each contender, over rounds, the lower third of its log time over the round's level.

        Of the undisturbed rounds, where there are enough; medians, where the contenders share few.
        What disturbs a single sample only makes it longer: from process to process the lower third
        differs less than the median does.
        """
        if len(self.levels) < LEAST_SAMPLES:
            return [log(median(one.values())) for one in self.contenders]
        if len(self.undisturbed) < ENOUGH_TO_RANK:
            return self._fit[0]
        return [
            lower_third(
                [one[at] - self.levels[at] for at in one if at in self.undisturbed] or [own]
            )
            for one, own in zip(self._logs, self._fit[0], strict=True)
        ]

    def undisturbed_times(self, index: int) -> ByRound:
        """Return a contender's samples of undisturbed rounds; without any, others at that level."""
        own = self.contenders[index]
        times = {at: taken for at, taken in own.items() if at in self.undisturbed}
        return times or self.as_undisturbed(own)

    def measurement(
        self,
        index: int,
        flops: int,
        paces: Sequence[float] = (),
        earlier: Sequence[float] = (),
        peak_gflops: float = inf,
    ) -> Measurement:
        """Median speed in undisturbed rounds, and a 95% interval for the median of another process.

        Where buffers lie and when a process runs moves its median by more than the samples in
        it spread. So the medians of the placements are taken for draws of such medians, and
        the interval is that for one more draw: Student's prediction interval on their
        logarithms (Hahn and Meeker, Statistical Intervals, 1991, section 4.7), widened to what
        all samples together give, and by the paces that the machine has shown.

        Args:
            index: of the contender.
            flops: of one run.
            paces: logarithms of how much longer than in undisturbed rounds everything took, in the
                trials of the same search.
            earlier: the same of searches before it.
            peak_gflops: what no process can be faster than.

        Raises:
            ValueError: there is no time at all.
        """
        times = self.undisturbed_times(index)
        found = summarise(list(times.values()), flops)
        middle = log(median(times.values()))
        low, high = (log(t) - middle for t in self._ends(times))
        slow, fast = self._reach(paces, earlier)
        ends = middle - hypot(low, fast), middle + hypot(high, slow)
        most = max(found.interval[1], peak_gflops)
        interval = flops / exp(ends[1]) / 1e9, min(most, flops / exp(ends[0]) / 1e9)
        return Measurement(found.gflops, interval, found.time_us)

    @staticmethod
    def _ends(times: ByRound) -> tuple[float, float]:
        """Seconds at the ends of the interval while the pace stays."""
        ordered = sorted(times.values())
        first, last = median_interval(len(ordered))
        groups: dict[int, list[float]] = {}
        for at, taken in times.items():
            groups.setdefault(at // PLACEMENT_ROUNDS, []).append(log(taken))
        centres = [median(each) for each in groups.values() if len(each) >= LEAST_IN_GROUP]
        if len(centres) < LEAST_GROUPS:
            return ordered[first], ordered[last]
        middle = fmean(centres)
        reach = student(len(centres)) * stdev(centres) * sqrt(1 + 1 / len(centres))
        return min(exp(middle - reach), ordered[first]), max(exp(middle + reach), ordered[last])

    def _reach(self, paces: Sequence[float], earlier: Sequence[float]) -> tuple[float, float]:
        """How far above and below the undisturbed level paces went, as logarithms; not below 0.

        Rounds and trials count each for themselves: there may be thousands of the ones beside
        the others. Where the machine has gone farther before than now, it is not known whether
        now was its good time or its bad.
        """
        by_placement: dict[int, list[float]] = {}
        for at, level in self.levels.items():
            by_placement.setdefault(at // PLACEMENT_ROUNDS, []).append(
                level - self._undisturbed_level
            )
        rounds = [pace for levels in by_placement.values() for pace in lasting(levels)]
        reaches = [_middle(shown) for shown in (rounds, paces) if shown]
        slow = max((high for _, high in reaches), default=0.0)
        fast = min((low for low, _ in reaches), default=0.0)
        slow, fast = max(0.0, slow), max(0.0, -fast)
        past = _middle(earlier) if earlier else (0.0, 0.0)
        unseen = max(0.0, past[1] - past[0] - slow - fast)
        return slow + unseen, fast + unseen

    @cached_property
    def _undisturbed_level(self) -> float:
        return median(level for at, level in self.levels.items() if at in self.undisturbed)

    def as_undisturbed(self, other: ByRound) -> ByRound:
        """What one who took part in some of the rounds would have taken in undisturbed ones."""
        told = {
            at: taken * exp(self._undisturbed_level - self.levels[at])
            for at, taken in other.items()
            if at in self.levels
        }
        return told or other


def by_round(timed: TimedInTurn, first: int = 0) -> ByRound:
    """One contender's seconds by round, whatever the placement."""
    return {
        first + placement * PLACEMENT_ROUNDS + at: seconds
        for placement, (times, rounds) in enumerate(zip(timed.times, timed.rounds, strict=True))
        for at, seconds in zip(rounds, times, strict=True)
    }


def rounds_of(reply: FinalsReply) -> Rounds:
    """The finalists of one answer."""
    return Rounds(tuple(by_round(timed) for timed in reply.finalists))


def lasting(values: Iterable[float]) -> list[float]:
    """Medians of `WINDOW` values in a row; one of all, where there are fewer."""
    values = list(values)
    if not values:
        return []
    count = max(1, len(values) - WINDOW + 1)
    return [median(values[at : at + WINDOW]) for at in range(count)]


def lower_third(values: Sequence[float]) -> float:
    """The value that a third of the others are below."""
    return sorted(values)[(len(values) - 1) // 3]


def over_undisturbed(paces: Sequence[float]) -> list[float]:
    """A search's paces over the least disturbed of them, as logarithms."""
    shown = sorted(map(log, paces))
    return [pace - shown[int(UNDISTURBED_SHARE * len(shown))] for pace in shown]


def _middle(values: Sequence[float]) -> tuple[float, float]:
    """Least and greatest of the middle 95%."""
    ordered = sorted(values)
    tail = len(ordered) // 40
    return ordered[tail], ordered[-1 - tail]


def student(groups: int) -> float:
    """Student's t at 97.5% for so many groups; that of fewer where the table has a gap."""
    return T_95[max(count for count in T_95 if count <= groups)]
