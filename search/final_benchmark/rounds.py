"""Contenders timed in rounds: who is fastest, and what is quoted.

On a shared machine, medians of similar contenders depend on which met more load; within a round all
meet the same. So each time is split into a part of the contender and the level of the round, in a
randomised block design (Box, Hunter and Hunter, Statistics for Experimenters, 2005, chapter 4).
Contenders are ranked by their part. The median of undisturbed rounds is quoted, and the reach of
the levels widens its interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, hypot, inf, log, sqrt
from statistics import fmean, median, stdev

from tilewise.kernels.statistics import median_interval
from tilewise.search.records import Measurement
from tilewise.search.runner.protocol import FinalistsReply, TimedInTurn
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
WINDOW = 5  # rounds of which a level is the median, as a trial's speed_factor is of about as many
T_95 = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262, 12: 2.201}
"""Student's t at 97.5%, by the number of groups."""

ByRound = dict[int, float]


@dataclass(frozen=True)
class Rounds:
    """Samples of contenders: seconds by number of the round. All have the same rounds.

    Numbers of different placements differ in their quotient by `PLACEMENT_ROUNDS`.
    """

    contenders: tuple[ByRound, ...]

    @cached_property
    def _logs(self) -> list[ByRound]:
        """Logarithms of times."""
        return [{at: log(t) for at, t in one.items()} for one in self.contenders]

    @cached_property
    def _fit(self) -> tuple[list[float], ByRound]:
        """Logarithms for contenders and rounds that add up to the times.

        Computed by median polish (Tukey, Exploratory Data Analysis, 1977, chapter 11).
        """
        logs, levels = self._logs, dict.fromkeys(self._logs[0], 0.0)
        own = [0.0] * len(logs)
        for _ in range(POLISHED):
            own = [median(one[at] - levels[at] for at in one) for one in logs]
            for at in levels:
                levels[at] = median(one[at] - mine for one, mine in zip(logs, own, strict=True))
        return own, levels

    @property
    def levels(self) -> ByRound:
        """How slow everything was in each round, as logarithms."""
        return self._fit[1]

    @cached_property
    def undisturbed(self) -> set[int]:
        """Rounds near the least level; all if they are few or one contender is alone."""
        if len(self.levels) < LEAST_SAMPLES or len(self.contenders) < 2:
            return set(self.levels)
        ordered = sorted(self.levels.values())
        least = ordered[max(LEAST_SAMPLES, int(UNDISTURBED_SHARE * len(ordered))) - 1]
        return {at for at, level in self.levels.items() if level <= least + UNDISTURBED}

    @property
    def disturbed(self) -> int:
        """The number of disturbed rounds."""
        return len(set(self.levels) - self.undisturbed)

    @cached_property
    def standings(self) -> list[float]:
        """Lower third, over undisturbed rounds, of each contender's log time over the level.

        Medians count if rounds are few. Disturbance only makes samples longer, so the
        lower third varies less between processes than the median.
        """
        if len(self.levels) < LEAST_SAMPLES:
            return [log(median(one.values())) for one in self.contenders]
        if len(self.undisturbed) < ENOUGH_TO_RANK:
            return self._fit[0]
        return [
            lower_third([one[at] - self.levels[at] for at in self.undisturbed])
            for one in self._logs
        ]

    def undisturbed_times(self, index: int) -> ByRound:
        """Return samples of undisturbed rounds."""
        return {at: s for at, s in self.contenders[index].items() if at in self.undisturbed}

    def measurement(
        self,
        index: int,
        flops: int,
        speed_factors: Sequence[float] = (),
        earlier: Sequence[float] = (),
        peak_gflops: float = inf,
    ) -> Measurement:
        """Return the median speed in undisturbed rounds with a 95% interval for another process.

        Placements and processes move medians by more than samples spread. So the medians of
        placements are draws, and the interval is Student's prediction interval for one more (Hahn
        and Meeker, Statistical Intervals, 1991, section 4.7), widened to that of all samples and by
        the machine's factors. `speed_factors` and `earlier` are logarithms over undisturbed rounds,
        in this search's trials and in earlier searches; no process exceeds `peak_gflops`.
        """
        times = self.undisturbed_times(index)
        found = summarise(list(times.values()), flops)
        middle = log(median(times.values()))
        low, high = (log(t) - middle for t in self._ends(times))
        slow, fast = self._reach(speed_factors, earlier)
        ends = middle - hypot(low, fast), middle + hypot(high, slow)
        most = max(found.interval[1], peak_gflops)
        interval = flops / exp(ends[1]) / 1e9, min(most, flops / exp(ends[0]) / 1e9)
        return Measurement(found.gflops, interval, found.time_us)

    @staticmethod
    def _ends(times: ByRound) -> tuple[float, float]:
        """Return seconds at the ends of the interval at a constant factor."""
        ordered = sorted(times.values())
        first, last = median_interval(len(ordered))
        groups = [group for group in _by_placement(times) if len(group) >= LEAST_IN_GROUP]
        centres = [median(map(log, group)) for group in groups]
        if len(centres) < LEAST_GROUPS:
            return ordered[first], ordered[last]
        middle = fmean(centres)
        reach = student(len(centres)) * stdev(centres) * sqrt(1 + 1 / len(centres))
        return min(exp(middle - reach), ordered[first]), max(exp(middle + reach), ordered[last])

    def _reach(
        self, speed_factors: Sequence[float], earlier: Sequence[float]
    ) -> tuple[float, float]:
        """Return how far factors went above and below the undisturbed level, as logarithms.

        Rounds and trials count separately. If earlier searches saw a wider range, the rest is added
        on both sides, since it is unknown whether now was a good time.
        """
        over = {at: level - self._undisturbed_level for at, level in self.levels.items()}
        rounds = [factor for levels in _by_placement(over) for factor in lasting(levels)]
        reaches = [_middle(shown) for shown in (rounds, speed_factors) if shown]
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
        """Return times of some rounds corrected to undisturbed ones."""
        level = self._undisturbed_level
        return {at: taken * exp(level - self.levels[at]) for at, taken in other.items()}


def by_round(timed: TimedInTurn, first: int = 0) -> ByRound:
    """Return one contender's seconds by round over all placements."""
    return {
        first + placement * PLACEMENT_ROUNDS + at: seconds
        for placement, (times, rounds) in enumerate(zip(timed.times, timed.rounds, strict=True))
        for at, seconds in zip(rounds, times, strict=True)
    }


def _by_placement(values: ByRound) -> list[list[float]]:
    groups: dict[int, list[float]] = {}
    for at, value in values.items():
        groups.setdefault(at // PLACEMENT_ROUNDS, []).append(value)
    return list(groups.values())


def rounds_of(reply: FinalistsReply) -> Rounds:
    """Return the finalists of one reply."""
    return Rounds(tuple(by_round(timed) for timed in reply.finalists))


def lasting(values: Sequence[float]) -> list[float]:
    """Return medians of `WINDOW` consecutive values; of all, if there are fewer."""
    count = max(1, len(values) - WINDOW + 1)
    return [median(values[at : at + WINDOW]) for at in range(count)]


def lower_third(values: Sequence[float]) -> float:
    """Return the value that a third of the others are below."""
    return sorted(values)[(len(values) - 1) // 3]


def over_undisturbed(speed_factors: Sequence[float]) -> list[float]:
    """Return factors over the least disturbed of them, as logarithms."""
    shown = sorted(map(log, speed_factors))
    return [speed_factor - shown[int(UNDISTURBED_SHARE * len(shown))] for speed_factor in shown]


def _middle(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the middle 95%."""
    ordered = sorted(values)
    tail = len(ordered) // 40
    return ordered[tail], ordered[-1 - tail]


def student(groups: int) -> float:
    """Return Student's t at 97.5% for a number of groups, or the next smaller one known."""
    return T_95[max(count for count in T_95 if count <= groups)]
