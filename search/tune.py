"""The search: prior, near problems, sampler, finals; resumed from whatever the store holds."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernels.paths import require_cache_dir
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.target.model import Target
from search.measure import summarise
from search.parameters import Point
from search.proposals import Proposal, Proposals
from search.protocol import Message
from search.records import Best, Measurement, TrialRecord, TuneRequest, TuneResult
from search.runner import CandidateFailureError, Runner
from search.space import Space
from search.store import TrialStore
from search.transfer import starting_points

FINALISTS = 4
LEAST_ROUNDS, MOST_ROUNDS = 5, 15
FINALS_S = 6.0  # a round of slow finalists counts for more, so fewer do
FINALS_SHARE = 0.15  # of a budget in seconds

OnTrial = Callable[[TrialRecord, TrialRecord | None], None]


class CandidateRunner(Protocol):
    """What the search needs of a runner; see `search.runner.Runner`."""

    def trial(self, steps: list[Any], best_s: float | None) -> Message:
        """Compile, check and time one schedule."""
        ...

    def finals(self, schedules: list[list[Any]], rounds: int, peers: bool) -> Message:
        """Time finalists again."""
        ...


RunnerFactory = Callable[[Problem, str, int], AbstractContextManager[CandidateRunner]]


def local_runner(
    problem: Problem, target: str, seed: int
) -> AbstractContextManager[CandidateRunner]:
    """A child process of this machine."""
    return Runner(problem, target, seed)


def tune(
    problem: Problem,
    target: Target,
    request: TuneRequest,
    store: TrialStore,
    *,
    on_trial: OnTrial | None = None,
    should_stop: Callable[[], bool] | None = None,
    make_runner: RunnerFactory = local_runner,
) -> TuneResult:
    """Search for the fastest schedule of `problem` on `target`.

    Trials that `store` holds count towards the budget and are not timed again; each
    new one is in the store before the next begins.

    Args:
        problem: what to compute.
        target: where; this machine.
        request: budget, seed, sampler, peers.
        store: where trials are kept.
        on_trial: called with each new trial and the best so far.
        should_stop: asked between trials; True ends the search early.
        make_runner: starts the process that runs candidates.

    Raises:
        CacheError: compiled code cannot be kept where it should be.
        BudgetError: the sampler needs a package that is absent.
        RunnerError: no child process could be started.
    """
    require_cache_dir()
    begin = time.monotonic()
    search = _Search(Space(problem, target), request, store)
    with make_runner(problem, target.canonical, request.seed) as runner:
        complete = True
        for point, origin in search.points():
            # However short the time, one candidate is tried, so that there is a result.
            if (should_stop and should_stop()) or (search.trials and _is_over(request, begin)):
                complete = False
                break
            trial = search.run(runner, point, origin)
            if on_trial:
                on_trial(trial, search.best)
        best, peers = search.finals(runner, request.peers)
    trials = tuple(search.trials)
    return TuneResult(best, trials, time.monotonic() - begin, complete, peers)


def _is_over(request: TuneRequest, begin: float) -> bool:
    if request.seconds is None:
        return False
    return time.monotonic() - begin > request.seconds * (1 - FINALS_SHARE)


@dataclass
class _Search:
    """The state of one search; everything in it can be rebuilt from the store."""

    space: Space
    request: TuneRequest
    store: TrialStore
    trials: list[TrialRecord] = field(default_factory=list)
    best: TrialRecord | None = None

    def __post_init__(self) -> None:
        stored = self.store.trials()
        starts = starting_points(self.space, self.store)
        self._proposals = Proposals(self.space, self.request, stored, starts)
        for trial in stored:
            self._take_in(trial)

    def _take_in(self, trial: TrialRecord) -> None:
        self.trials.append(trial)
        if trial.state == "timed" and _time_us(trial) < (
            _time_us(self.best) if self.best else float("inf")
        ):
            self.best = trial

    def points(self) -> Iterator[Proposal]:
        """Untried points until the budget of trials is spent or nothing is left."""
        while len(self.trials) < self.request.trials:
            proposal = self._proposals.next()
            if proposal is None:
                return
            yield proposal

    def run(self, runner: CandidateRunner, point: Point, origin: str) -> TrialRecord:
        """Try one point and keep the trial, whatever came of it."""
        schedule = self.space.schedule(point)
        number = self.trials[-1].number + 1 if self.trials else 0
        best_s = _time_us(self.best) / 1e6 if self.best else None
        try:
            reply = runner.trial(list(schedule.to_json()), best_s)
        except CandidateFailureError as failure:
            trial = TrialRecord(
                number, schedule, point, "failed", origin, failure.kind, str(failure)
            )
        else:
            trial = TrialRecord(
                number=number,
                schedule=schedule,
                params=point,
                state="pruned" if reply["pruned"] else "timed",
                origin=origin,
                measurement=summarise(reply["times"], self.space.problem.flops),
                samples=tuple(reply["times"]),
                rejected=reply["rejected"],
                compile_s=reply["compile_s"],
                max_error=reply["max_error"],
            )
        self.store.add(trial)
        self._proposals.learn(trial)
        self._take_in(trial)
        return trial

    def finals(
        self, runner: CandidateRunner, peers: bool
    ) -> tuple[Best | None, dict[str, Measurement]]:
        """Time the best few again, interleaved, and rank them by that."""
        timed = sorted((t for t in self.trials if t.state == "timed"), key=_time_us)
        finalists = [t.schedule for t in timed[:FINALISTS]]
        while finalists:
            steps = [list(s.to_json()) for s in finalists]
            try:
                reply = runner.finals(steps, self._rounds(timed), peers)
            except CandidateFailureError as failure:
                # One that passed its trial fails now and then; go on with the others.
                finalists.pop(-1 if failure.index is None else failure.index)
                continue
            return self._rank(finalists, reply)
        return None, {}

    @staticmethod
    def _rounds(timed: list[TrialRecord]) -> int:
        one_round_s = sum(_time_us(t) for t in timed[:FINALISTS]) / 1e6
        return max(LEAST_ROUNDS, min(MOST_ROUNDS, int(FINALS_S / one_round_s)))

    def _rank(
        self, finalists: list[Schedule], reply: Message
    ) -> tuple[Best, dict[str, Measurement]]:
        flops = self.space.problem.flops
        ranked = sorted(
            zip(finalists, (summarise(times, flops) for times in reply["times"]), strict=True),
            key=lambda pair: pair[1].time_us,
        )
        (schedule, measurement), *others = ranked
        scratch = reply["scratch_bytes"][finalists.index(schedule)]
        best = Best(schedule, measurement, reply["peak_gflops"], tuple(others), scratch)
        return best, {name: summarise(t, flops) for name, t in reply["peers"].items()}


def _time_us(trial: TrialRecord) -> float:
    assert trial.measurement is not None
    return trial.measurement.time_us
