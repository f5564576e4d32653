"""The final benchmark: time the finalists again, interleaved.

Buffer placement moves a kernel by up to 4% and processes differ, so finalists are timed on several
placements in two processes, or more if those were disturbed. The fastest in the rounds wins
(`tilewise.search.final_benchmark.rounds`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from math import exp, log
from statistics import median

from tilewise.kernels.problem import Problem
from tilewise.search.budget import Budget
from tilewise.search.final_benchmark.rounds import (
    PLACEMENT_ROUNDS,
    UNDISTURBED_SHARE,
    ByRound,
    Rounds,
    by_round,
    over_undisturbed,
    rounds_of,
)
from tilewise.search.progress import OnPhase, SearchPhase
from tilewise.search.records import Measurement, TrialRecord, Winner, time_us
from tilewise.search.runner.protocol import CandidateFailureError, FinalistsReply
from tilewise.search.runner.runner import Runner
from tilewise.search.timing.samples import SAMPLE_S, sample_cost, summarise
from tilewise.search.timing.speed_factor import FASTER, spread

FINALISTS = 4  # where runs are long, and as many are reported
CONTENDERS = 12
WHEN_NOISY = 2  # times as many, and times the rounds of a semifinal: trials err by more then
LEAST_SEMIFINAL_ROUNDS, MOST_SEMIFINAL_ROUNDS, SEMIFINAL_S = 7, 20, 0.5
BEFORE_ROUNDS, CHECK_S = 4, 0.02  # runs of each before the rounds, and what a check takes
SEMIFINAL_SHARE = 0.1  # of the time that is left, where that is limited
LEAST_ROUNDS, ENOUGH_ROUNDS, MOST_SAMPLES_OF_ALL = 5, 20, 480  # on each placement of the buffers
FINAL_S = 3.0  # in each process; a round of slow finalists counts for more, so fewer do
PLACEMENTS = 3  # of the buffers, in each process
LEAST_TIMING_S = 0.5  # to be left after the start of a fresh process, in two halves


@dataclass(frozen=True)
class RoundsPlan:
    """How many finalists and rounds fit the remaining time.

    Attributes:
        evicting_s: time to empty the caches before each sample; 0 if not done.
        is_noisy: whether speed factors varied a lot in the trials.
    """

    budget: Budget
    threads: int
    evicting_s: float
    is_noisy: bool

    @property
    def _times(self) -> int:
        return WHEN_NOISY if self.is_noisy else 1

    def contenders(self, ranking: Sequence[TrialRecord]) -> list[TrialRecord]:
        """Return those who may win: as many as a semifinal can take."""
        left = self.budget.final_left_s
        within_s = self._times * FINAL_S if left is None else SEMIFINAL_SHARE * left
        evicting_s = LEAST_SEMIFINAL_ROUNDS * self.evicting_s
        taken_s = accumulate(
            max(CHECK_S, self._semifinal_s(time_us(trial) / 1e6)) + evicting_s for trial in ranking
        )
        fitting = sum(seconds <= within_s for seconds in taken_s)
        return list(ranking[: max(FINALISTS, min(self._times * CONTENDERS, fitting))])

    def _semifinal_s(self, run_s: float) -> float:
        """Return the seconds that a contender's runs take, without emptying caches."""
        sample_s = sample_cost(run_s, self.threads, self.evicting_s > 0)
        return LEAST_SEMIFINAL_ROUNDS * sample_s + BEFORE_ROUNDS * run_s

    def share(self) -> tuple[bool, float | None]:
        """Return whether a fresh process fits, and the seconds of the present one."""
        left = self.budget.final_left_s
        if left is None:
            return True, None
        timing_s = left - self.budget.start_s
        return (True, timing_s / 2) if timing_s >= LEAST_TIMING_S else (False, left)

    def most_rounds(self, finalists: list[TrialRecord]) -> int:
        """Return the rounds on each placement; a budget may end them earlier."""
        if self.budget.final_left_s is not None:
            return PLACEMENT_ROUNDS - 1
        most = MOST_SAMPLES_OF_ALL // len(finalists)
        return max(LEAST_ROUNDS, min(most, self.fitting_rounds(finalists)))

    def fitting_rounds(self, finalists: list[TrialRecord]) -> int:
        """Return how many rounds fit the time for a placement."""
        _, within_s = self.share()
        within_s = FINAL_S if within_s is None else within_s - CHECK_S * len(finalists)
        return int(within_s / PLACEMENTS / max(self._round_s(finalists), SAMPLE_S))

    def semifinal(self, contenders: list[TrialRecord]) -> tuple[int, float | None]:
        """Return the rounds of a semifinal and its seconds."""
        left = self.budget.final_left_s
        budget_s = None if left is None else SEMIFINAL_SHARE * left
        fitting = int(SEMIFINAL_S / self._round_s(contenders))
        rounds = max(LEAST_SEMIFINAL_ROUNDS, min(MOST_SEMIFINAL_ROUNDS, fitting))
        return self._times * rounds, budget_s

    def is_short(self, contenders: list[TrialRecord]) -> bool:
        """Return whether all contenders can be timed as often as finalists."""
        return self.fitting_rounds(contenders) >= ENOUGH_ROUNDS

    def _round_s(self, contenders: list[TrialRecord]) -> float:
        is_cold = self.evicting_s > 0
        costs = [sample_cost(time_us(trial) / 1e6, self.threads, is_cold) for trial in contenders]
        return sum(costs) + self.evicting_s * len(contenders)


PROCESSES = 2  # that time the finalists, unless there is no time for the second
LESS_DISTURBED = 0.1  # of a speed_factor's logarithm: by so much the trials were less disturbed
WAITING = 4  # further processes, at most, that wait for such times
ENOUGH_SPEED_FACTORS = 10  # to tell what the search has seen
AFRESH = 10 * PLACEMENT_ROUNDS  # from where the rounds of a fresh process are counted


@dataclass
class FinalBenchmark:
    """The final benchmark of one search.

    Attributes:
        peers: whether other libraries take part.
        speed_factors: speed factors of the search's trials.
        earlier: those of each earlier search on the target.
        evicting_s: time to empty the caches before each sample; 0 if not done.
        should_stop: whether to end waiting for undisturbed times.
        failure: the last failure of a finalist; empty if none failed.
        scale: how many times longer than in their trials the finalists took in undisturbed rounds;
            1 if the trials were less disturbed.
    """

    problem: Problem
    peers: bool
    runner: Runner
    budget: Budget
    speed_factors: Sequence[float] = ()
    earlier: Sequence[Sequence[float]] = ()
    threads: int = 1
    evicting_s: float = 0.0
    should_stop: Callable[[], bool] | None = None
    on_phase: OnPhase | None = None
    failure: str = field(default="", init=False)
    scale: float = field(default=1.0, init=False)
    _timed: list[ByRound] = field(default_factory=list, init=False)
    _peak: float = field(default=0.0, init=False)
    _rejected: int = field(default=0, init=False)

    @property
    def _plan(self) -> RoundsPlan:
        is_noisy = spread(self.speed_factors) > FASTER
        return RoundsPlan(self.budget, self.threads, self.evicting_s, is_noisy)

    def run(self, ranking: Sequence[TrialRecord]) -> tuple[Winner | None, dict[str, Measurement]]:
        """Time the first of a ranking, and rank them by that."""
        self._tell(0)
        finalists = self._plan.contenders(ranking)
        if not self._plan.is_short(finalists):
            finalists = self._semifinal(finalists)
        while finalists:
            rounds = self._plan.most_rounds(finalists)
            afresh, budget_s = self._plan.share()
            try:
                reply = self._time(finalists, rounds, self.peers, budget_s)
            except CandidateFailureError as failure:
                # One that passed its trial fails now and then; go on with the others.
                self.peers = self._drop(finalists, failure, self.peers)
                continue
            self._timed = [by_round(timed) for timed in reply.finalists]
            self._peak, self._rejected = reply.peak_gflops, reply.rejected
            if afresh and PROCESSES > 1 and self._time_afresh(finalists, rounds, 1):
                self._wait_until_undisturbed(finalists, rounds)
            if not self._were_disturbed(finalists):
                self.scale = exp(self._level(finalists, Rounds(tuple(self._timed))))
            return self._rank(finalists, reply)
        return None, {}

    def _tell(self, process: int) -> None:
        """Report the finished processes; two are enough if undisturbed."""
        if self.on_phase is not None:
            self.on_phase(SearchPhase("finals", process, max(PROCESSES, process + 1)))

    def _drop(
        self, finalists: list[TrialRecord], failure: CandidateFailureError, peers: bool = False
    ) -> bool:
        """Remove the failed finalist, or the last ones if it is unknown and none fails alone.

        In place of the last ones, `peers` that took part go. Return whether they stay.
        """
        self.failure = f"{failure.kind}: {failure}"
        index = self._failing(finalists) if failure.index is None else failure.index
        if index is not None:
            finalists.pop(index)
        elif not peers:
            del finalists[min(FINALISTS, len(finalists) - 1) :]
        return peers and index is not None

    def _failing(self, finalists: list[TrialRecord]) -> int | None:
        """Return the first finalist that fails alone, if any."""
        for index, one in enumerate(finalists):
            try:
                self._time([one], 1, False, None, placements=1)
            except CandidateFailureError:
                return index
        return None

    def _semifinal(self, contenders: list[TrialRecord]) -> list[TrialRecord]:
        """Return the best of a few rounds; if those fail, of the trials.

        A trial's time errs by more than the best differ.
        """
        if len(contenders) <= FINALISTS:
            return contenders
        rounds, budget_s = self._plan.semifinal(contenders)
        try:
            reply = self._time(contenders, rounds, False, budget_s, placements=1)
        except CandidateFailureError as failure:
            self._drop(contenders, failure)
            return self._semifinal(contenders)
        standings = rounds_of(reply).standings
        order = sorted(range(len(contenders)), key=lambda i: standings[i])
        return [contenders[i] for i in order[:FINALISTS]]

    def _time(
        self,
        finalists: list[TrialRecord],
        rounds: int,
        peers: bool,
        budget_s: float | None,
        placements: int = PLACEMENTS,
    ) -> FinalistsReply:
        steps = [list(trial.schedule.to_json()) for trial in finalists]
        return self.runner.time_finalists(steps, rounds, peers, placements, budget_s)

    def _wait_until_undisturbed(self, finalists: list[TrialRecord], rounds: int) -> None:
        """Repeat in further processes, unless seconds are limited."""
        for process in range(2, 2 + WAITING):
            stops = self.should_stop is not None and self.should_stop()
            is_over = self.budget.final_left_s is not None or stops
            if is_over or not self._were_disturbed(finalists):
                return
            if not self._time_afresh(finalists, rounds, process):
                return

    def _were_disturbed(self, finalists: list[TrialRecord]) -> bool:
        """Return whether all rounds were slower than the search has seen.

        Which finalist is faster can depend on other load.
        """
        factors = sorted(self._speed_factors(finalists, Rounds(tuple(self._timed))))
        is_known = len(factors) >= ENOUGH_SPEED_FACTORS
        return is_known and factors[int(UNDISTURBED_SHARE * len(factors))] < -LESS_DISTURBED

    def _time_afresh(self, finalists: list[TrialRecord], rounds: int, process: int) -> bool:
        """Repeat in another process; return whether that succeeded.

        A failure keeps the other processes' results.
        """
        self._tell(process)
        self.runner.renew()
        with suppress(CandidateFailureError):
            reply = self._time(finalists, rounds, False, self.budget.final_left_s)
            for samples, again in zip(self._timed, reply.finalists, strict=True):
                samples.update(by_round(again, process * AFRESH))
            self._peak = max(self._peak, reply.peak_gflops)
            self._rejected += reply.rejected
            return True
        return False

    def _rank(
        self, finalists: list[TrialRecord], reply: FinalistsReply
    ) -> tuple[Winner, dict[str, Measurement]]:
        flops = self.problem.flops
        rounds = Rounds(tuple(self._timed))
        own, peak = self._speed_factors(finalists, rounds), self._peak
        earlier = [factor for one in self.earlier for factor in over_undisturbed(one)]
        order = sorted(range(len(finalists)), key=lambda i: rounds.standings[i])
        (schedule, measurement), *others = [
            (finalists[i].schedule, rounds.measurement(i, flops, own, earlier, peak)) for i in order
        ]
        winner = order[0]
        times = rounds.undisturbed_times(winner)
        best = Winner(
            schedule,
            measurement,
            peak,
            tuple(others[: FINALISTS - 1]),
            reply.scratch_bytes[winner],
            samples=len(times),
            placements=len({at // PLACEMENT_ROUNDS for at in times}),
            rejected=self._rejected,
            disturbed=rounds.disturbed,
            taken=sum(len(timed) for timed in self._timed),
            rounds=len(rounds.levels),
            spread=spread(self.speed_factors),
            cold=reply.cold,
            accuracy=reply.accuracy[winner] if reply.accuracy else {},
        )
        peers = {
            name: summarise(list(rounds.as_undisturbed(by_round(timed)).values()), flops)
            for name, timed in reply.peers.items()
        }
        return best, peers

    def _speed_factors(self, finalists: list[TrialRecord], rounds: Rounds) -> list[float]:
        """Return the search's factors over that of undisturbed rounds, as logarithms."""
        level = self._level(finalists, rounds)
        return [log(speed_factor) - level for speed_factor in self.speed_factors]

    @staticmethod
    def _level(finalists: list[TrialRecord], rounds: Rounds) -> float:
        """Return the factor of undisturbed rounds by the trials, as a logarithm."""
        return median(
            log(1e6 * median(rounds.undisturbed_times(index).values()) / time_us(trial))
            for index, trial in enumerate(finalists)
        )
