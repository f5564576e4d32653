"""Time schedules at one size of a range: checked, interleaved, on several buffer placements."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp
from statistics import median

from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.search.final_benchmark.rounds import rounds_of
from tilewise.search.records import TuneRequest
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner, RunnerFactory, local_runner
from tilewise.search.timing.samples import sample_cost

SCREENING_ROUNDS = 3
OUT_OF_REACH = 1.5  # times the fastest: who is so slow is not timed in further rounds
LEAST_ROUNDS, MOST_ROUNDS, PLACEMENTS = 3, 20, 3
ROUNDS_S = 3.0  # of all placements together


@dataclass(frozen=True)
class SizeTimer:
    """Times schedules at single problems on one target.

    Attributes:
        seconds: for the rounds of one problem; None takes `ROUNDS_S` and at least `LEAST_ROUNDS`.
    """

    target: str
    threads: int
    request: TuneRequest
    seconds: float | None = None
    make_runner: RunnerFactory = local_runner

    def times_us(
        self,
        problem: Problem,
        schedules: Sequence[Schedule],
        on_failure: Callable[[Schedule, str], None],
    ) -> dict[Schedule, float]:
        """Return the time of each schedule in us.

        Each is compared with the reference first, on poisoned memory. All run once to be screened;
        those within reach of the fastest run again in more rounds. One that fails or is wrong has
        no time, and `on_failure` gets it with the reason.
        """
        with self.make_runner(problem, self.target, self.request) as runner:
            rough = self._timed(runner, schedules, SCREENING_ROUNDS, 1, on_failure)
            if not rough:
                return {}
            limit = OUT_OF_REACH * min(rough.values())
            near = {one: taken for one, taken in rough.items() if taken <= limit}
            rounds = self._rounds(near.values())
            return rough | self._timed(runner, list(near), rounds, PLACEMENTS, on_failure)

    def _rounds(self, times_us: Iterable[float]) -> int:
        is_cold = self.request.cache == "cold"
        round_s = sum(sample_cost(taken / 1e6, self.threads, is_cold) for taken in times_us)
        within_s = ROUNDS_S if self.seconds is None else self.seconds
        return min(MOST_ROUNDS, max(LEAST_ROUNDS, int(within_s / PLACEMENTS / round_s)))

    def _timed(
        self,
        runner: Runner,
        schedules: Sequence[Schedule],
        rounds: int,
        placements: int,
        on_failure: Callable[[Schedule, str], None],
    ) -> dict[Schedule, float]:
        """Return times of interleaved rounds in us, without the schedules that fail."""
        groups, found = [list(schedules)], dict[Schedule, float]()
        while groups:
            if not (group := groups.pop()):
                continue
            steps = [list(one.to_json()) for one in group]
            try:
                timed = rounds_of(runner.time_finalists(steps, rounds, False, placements))
            except CandidateFailureError as failure:
                middle = len(group) // 2
                if failure.index is None and middle:  # any of them failed: halves are timed apart
                    groups += group[:middle], group[middle:]
                else:
                    on_failure(group.pop(failure.index or 0), f"{failure.kind}: {failure}")
                    groups.append(group)
                continue
            fastest = min(range(len(group)), key=lambda index: timed.standings[index])
            base_us = 1e6 * median(timed.undisturbed_times(fastest).values())
            for index, one in enumerate(group):
                found[one] = base_us * exp(timed.standings[index] - timed.standings[fastest])
        return found
