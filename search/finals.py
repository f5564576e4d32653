"""The finalists timed again: interleaved, on several placements of the buffers, in two processes.

Where buffers lie moves a kernel by up to 4%, and one process is not like the next, so a
winner by the trials alone would be one of circumstance. The winner is the one that stands best
in the rounds (`search.measure.standings`).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernels.problem import Problem
from kernels.schedule import Schedule
from search.budget import Budget
from search.measure import standings, summarise, summarise_groups
from search.process import CandidateFailureError
from search.protocol import Message
from search.records import Best, Measurement, TrialRecord

FINALISTS = 4
LEAST_ROUNDS, MOST_ROUNDS = 5, 15  # on each placement of the buffers
FILLING_ROUNDS = 500  # where a budget in seconds ends them
FINALS_S = 3.0  # in each process; a round of slow finalists counts for more, so fewer do
PLACEMENTS = 3  # of the buffers, in each process
AFRESH = 10 * FILLING_ROUNDS  # from where the rounds of the fresh process are counted
LEAST_TIMING_S = 0.5  # to be left beside the start of a fresh process, in two halves


class FinalsRunner(Protocol):
    """What the finals need of a runner."""

    def finals(
        self,
        schedules: list[list[Any]],
        rounds: int,
        peers: bool,
        placements: int = 1,
        budget_s: float | None = None,
    ) -> Message:
        """Time finalists again."""
        ...

    def renew(self) -> None:
        """Time in a fresh process from now on."""
        ...


@dataclass
class Finals:
    """The finals of one search.

    Attributes:
        problem: what is computed.
        peers: whether other libraries take part.
        runner: where they are run.
        budget: when they have to end.
        most: how many take part.
    """

    problem: Problem
    peers: bool
    runner: FinalsRunner
    budget: Budget
    most: int = FINALISTS
    _times: list[list[list[float]]] = field(default_factory=list, init=False)
    _in_rounds: list[list[tuple[int, float]]] = field(default_factory=list, init=False)

    def run(self, ranking: Sequence[TrialRecord]) -> tuple[Best | None, dict[str, Measurement]]:
        """Time the first few of a ranking, and rank them by that."""
        finalists = [trial.schedule for trial in ranking[: self.most]]
        rounds = _rounds(ranking[: self.most])
        while finalists:
            try:
                afresh, budget_s = self._share()
                reply = self._time(finalists, rounds, self.peers, budget_s)
            except CandidateFailureError as failure:
                # One that passed its trial fails now and then; go on with the others.
                finalists.pop(-1 if failure.index is None else failure.index)
                continue
            self._times = [list(groups) for groups in reply["times"]]
            self._in_rounds = in_rounds(reply)
            if afresh:
                self._time_afresh(finalists, rounds, reply)
            return self._rank(finalists, reply)
        return None, {}

    def _share(self) -> tuple[bool, float | None]:
        """Whether there is time for a fresh process, and what the present one may take."""
        left = self.budget.finals_left_s
        if left is None:
            return True, None
        timing_s = left - self.budget.start_s
        return (True, timing_s / 2) if timing_s >= LEAST_TIMING_S else (False, left)

    def _time(
        self, finalists: list[Schedule], rounds: int, peers: bool, budget_s: float | None
    ) -> Message:
        steps = [list(schedule.to_json()) for schedule in finalists]
        rounds = rounds if budget_s is None else FILLING_ROUNDS
        return self.runner.finals(steps, rounds, peers, PLACEMENTS, budget_s)

    def _time_afresh(self, finalists: list[Schedule], rounds: int, first: Message) -> None:
        """Again in another process; one that fails there keeps what the first has said."""
        self.runner.renew()
        with suppress(CandidateFailureError):
            left = self.budget.finals_left_s
            reply = self._time(finalists, rounds, peers=False, budget_s=left)
            for groups, more in zip(self._times, reply["times"], strict=True):
                groups.extend(more)
            for samples, again in zip(self._in_rounds, in_rounds(reply, AFRESH), strict=True):
                samples.extend(again)
            first["peak_gflops"] = max(first["peak_gflops"], reply["peak_gflops"])
            first["rejected"] += reply["rejected"]

    def _rank(
        self, finalists: list[Schedule], reply: Message
    ) -> tuple[Best, dict[str, Measurement]]:
        flops = self.problem.flops
        measured = [summarise_groups(groups, flops) for groups in self._times]
        standing = standings(self._in_rounds)
        order = sorted(range(len(finalists)), key=lambda i: standing[i])
        (schedule, measurement), *others = [(finalists[i], measured[i]) for i in order]
        at = finalists.index(schedule)
        best = Best(
            schedule,
            measurement,
            reply["peak_gflops"],
            tuple(others),
            reply["scratch_bytes"][at],
            samples=sum(map(len, self._times[at])),
            placements=len(self._times[at]),
            rejected=reply["rejected"],
            cold=reply["cold"],
        )
        return best, {name: summarise(t, flops) for name, t in reply["peers"].items()}


def in_rounds(reply: Message, first: int = 0) -> list[list[tuple[int, float]]]:
    """Each finalist's samples with the round that they are of, placement after placement."""
    return [
        [
            (first + group * FILLING_ROUNDS + index, seconds)
            for group, (indices, times) in enumerate(zip(rounds, groups, strict=True))
            for index, seconds in zip(indices, times, strict=False)
        ]
        for rounds, groups in zip(reply["rounds"], reply["times"], strict=True)
    ]


def _rounds(finalists: Sequence[TrialRecord]) -> int:
    one_round_s = sum(time_us(trial) for trial in finalists) / 1e6
    fitting = int(FINALS_S / PLACEMENTS / max(one_round_s, 1e-9))
    return max(LEAST_ROUNDS, min(MOST_ROUNDS, fitting))


def time_us(trial: TrialRecord) -> float:
    """The median time of a trial that ran."""
    assert trial.measurement is not None
    return trial.measurement.time_us
