"""How many finalists there is time for, and how many rounds of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tilewise.search.budget import Budget
from tilewise.search.finals.rounds import PLACEMENT_ROUNDS
from tilewise.search.records import TrialRecord, time_us
from tilewise.search.timing.samples import SAMPLE_S, sample_cost

FINALISTS = 4
CONTENDERS = 12
WHEN_NOISY = 2  # times as many, and times the rounds of a semifinal: trials err by more then
LEAST_SEMIFINAL_ROUNDS, MOST_SEMIFINAL_ROUNDS, SEMIFINAL_S = 7, 20, 0.5
BEFORE_ROUNDS, CHECK_S = 4, 0.02  # runs of each before the rounds, and what a check takes
SEMIFINAL_SHARE = 0.1  # of the time that is left, where that is limited
LEAST_ROUNDS, ENOUGH_ROUNDS, MOST_SAMPLES_OF_ALL = 5, 20, 480  # on each placement of the buffers
FINALS_S = 3.0  # in each process; a round of slow finalists counts for more, so fewer do
PLACEMENTS = 3  # of the buffers, in each process
LEAST_TIMING_S = 0.5  # to be left beside the start of a fresh process, in two halves


@dataclass(frozen=True)
class RoundsPlan:
    """What the time that is left is good for.

    Attributes:
        budget: when the finals have to end.
        most: how many take part where runs are long.
        threads: that a run uses.
        evicting_s: that it takes to empty the caches before each sample; 0 where that is not done.
        is_noisy: whether the machine's pace went far up and down in the trials.
    """

    budget: Budget
    most: int
    threads: int
    evicting_s: float
    is_noisy: bool = False

    @property
    def _times(self) -> int:
        return WHEN_NOISY if self.is_noisy else 1

    def contenders(self, ranking: Sequence[TrialRecord]) -> list[TrialRecord]:
        """Those who can win: as many as can meet in a semifinal, checked and warmed up."""
        left = self.budget.finals_left_s
        within_s = self._times * FINALS_S if left is None else SEMIFINAL_SHARE * left
        evicting_s = LEAST_SEMIFINAL_ROUNDS * self.evicting_s
        taken_s = accumulate(
            max(CHECK_S, self._semifinal_s(time_us(trial) / 1e6)) + evicting_s for trial in ranking
        )
        fitting = sum(seconds <= within_s for seconds in taken_s)
        return list(ranking[: max(self.most, min(self._times * CONTENDERS, fitting))])

    def _semifinal_s(self, run_s: float) -> float:
        """Seconds that one run of so many takes part for, less what empties the caches."""
        sample_s = sample_cost(run_s, self.threads, self.evicting_s > 0)
        return LEAST_SEMIFINAL_ROUNDS * sample_s + BEFORE_ROUNDS * run_s

    def share(self) -> tuple[bool, float | None]:
        """Whether there is time for a fresh process, and what the present one may take."""
        left = self.budget.finals_left_s
        if left is None:
            return True, None
        timing_s = left - self.budget.start_s
        return (True, timing_s / 2) if timing_s >= LEAST_TIMING_S else (False, left)

    def most_rounds(self, finalists: list[TrialRecord]) -> int:
        """On each placement; a budget ends them where there is one."""
        if self.budget.finals_left_s is not None:
            return PLACEMENT_ROUNDS - 1
        most = MOST_SAMPLES_OF_ALL // len(finalists)
        return max(LEAST_ROUNDS, min(most, self.fitting_rounds(finalists)))

    def fitting_rounds(self, finalists: list[TrialRecord]) -> int:
        """How many fit into the time for a placement."""
        _, within_s = self.share()
        within_s = FINALS_S if within_s is None else within_s - CHECK_S * len(finalists)
        return int(within_s / PLACEMENTS / max(self._round_s(finalists), SAMPLE_S))

    def semifinal(self, contenders: list[TrialRecord]) -> tuple[int, float | None]:
        """Rounds of a semifinal, and the seconds that it may take."""
        left = self.budget.finals_left_s
        budget_s = None if left is None else SEMIFINAL_SHARE * left
        fitting = int(SEMIFINAL_S / self._round_s(contenders))
        rounds = max(LEAST_SEMIFINAL_ROUNDS, min(MOST_SEMIFINAL_ROUNDS, fitting))
        return self._times * rounds, budget_s

    def is_short(self, contenders: list[TrialRecord]) -> bool:
        """Whether all of them can be timed as often as finalists have to be."""
        return self.fitting_rounds(contenders) >= ENOUGH_ROUNDS

    def _round_s(self, contenders: list[TrialRecord]) -> float:
        """Seconds of one round."""
        is_cold = self.evicting_s > 0
        costs = [sample_cost(time_us(trial) / 1e6, self.threads, is_cold) for trial in contenders]
        return sum(costs) + self.evicting_s * len(contenders)
