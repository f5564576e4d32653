"""The search: prior, near problems, sampler, finals; resumed from whatever the store holds."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernels.paths import require_cache_dir
from kernels.problem import Problem
from kernels.target.model import Target
from search.attempt import attempt
from search.budget import Budget
from search.finals import Finals, FinalsRunner, time_us
from search.pace import WORTH
from search.parameters import Point
from search.proposals import Proposal, Proposals
from search.protocol import Message
from search.records import TrialRecord, TuneRequest, TuneResult
from search.runner import Runner
from search.space import Space
from search.store import TrialStore
from search.transfer import warmed

OnTrial = Callable[[TrialRecord, TrialRecord | None], None]

BeforeFinals = Callable[[list[TrialRecord], float | None], None]


class CandidateRunner(FinalsRunner, Protocol):
    """What the search needs of a runner; see `search.runner.Runner`."""

    @property
    def ahead(self) -> int:
        """How many candidates are worth preparing while one is timed."""
        ...

    @property
    def start_s(self) -> float:
        """Seconds that the start of the timing process took."""
        ...

    def prepare(self, steps: list[Any]) -> None:
        """Have a schedule compiled before its trial, while others are timed."""
        ...

    def trial(
        self, steps: list[Any], best_s: float | None, control: Message | None = None
    ) -> Message:
        """Compile, check and time one schedule."""
        ...

    def settle(self) -> None:
        """End whatever computes beside the timing."""
        ...


RunnerFactory = Callable[[Problem, str, TuneRequest], AbstractContextManager[CandidateRunner]]


def local_runner(
    problem: Problem, target: str, request: TuneRequest
) -> AbstractContextManager[CandidateRunner]:
    """A child process of this machine."""
    return Runner(problem, target, request.seed, cache=request.cache)


def tune(
    problem: Problem,
    target: Target,
    request: TuneRequest,
    store: TrialStore,
    *,
    on_trial: OnTrial | None = None,
    should_stop: Callable[[], bool] | None = None,
    before_finals: BeforeFinals | None = None,
    make_runner: RunnerFactory = local_runner,
) -> TuneResult:
    """Search for the fastest schedule of `problem` on `target`.

    Trials that `store` holds count towards the budget and are not timed again; each
    new one is in the store before it counts. While one is timed the next ones are
    compiled, so the sampler is asked a few trials ahead of what it has been told.

    A budget in seconds is for everything: the search ends early enough for what
    `before_finals` does, and the rounds of the finals fill what is left.

    Args:
        problem: what to compute.
        target: where; this machine.
        request: budget, seed, sampler, peers, cache mode.
        store: where trials are kept.
        on_trial: called with each new trial and the best so far.
        should_stop: asked between trials; True ends the search early.
        before_finals: called between search and finals with the trials that ran, the fastest
            first, and the moment of `time.monotonic` by which it should have ended, if any.
        make_runner: starts the process that runs candidates.

    Raises:
        CacheError: compiled code cannot be kept where it should be.
        BudgetError: the sampler needs a package that is absent.
        RunnerError: no child process could be started.
    """
    require_cache_dir()
    budget = Budget(request, time.monotonic())
    space, starts = warmed(Space(problem, target), store)
    search = _Search(space, request, store, starts)
    with make_runner(problem, target.canonical, request) as runner:
        complete = True
        for point, origin in search.ahead(runner):
            # However short the time, one candidate is tried, so that there is a result.
            if (should_stop and should_stop()) or (search.trials and budget.search_is_over()):
                complete = False
                break
            trial = search.run(runner, point, origin)
            budget.start_s = runner.start_s
            if on_trial:
                on_trial(trial, search.best)
        runner.settle()
        if before_finals and search.best:
            before_finals(search.ranking(), budget.finals_begin)
        to_end = [trial for trial in search.ranking() if trial.state == "timed"]
        finals = Finals(
            problem,
            request.peers,
            runner,
            budget,
            paces=search.paces,
            earlier=store.earlier_paces(),
            threads=target.threads,
            cold=request.cache == "cold",
            should_stop=should_stop,
        )
        best, peers = finals.run(to_end)
    trials = tuple(search.trials)
    return TuneResult(best, trials, budget.spent_s, complete, peers)


@dataclass
class _Search:
    """The state of one search; everything in it can be rebuilt from the store."""

    space: Space
    request: TuneRequest
    store: TrialStore
    starts: list[Point]
    trials: list[TrialRecord] = field(default_factory=list)
    best: TrialRecord | None = None
    control: TrialRecord | None = None
    paces: list[float] = field(default_factory=list)
    _asked: deque[Proposal] = field(default_factory=deque)

    def __post_init__(self) -> None:
        stored = self.store.trials()
        refused = self.store.known_failures()
        self._proposals = Proposals(self.space, self.request, stored, self.starts, refused)
        for trial in stored:
            self._take_in(trial)
        if self.best is not None:  # the luckiest is no control, but the first that is about as fast
            near = time_us(self.best) / WORTH
            timed = (trial for trial in self.trials if trial.state == "timed")
            self.control = next(trial for trial in timed if time_us(trial) <= near)

    def _take_in(self, trial: TrialRecord) -> None:
        self.trials.append(trial)
        if trial.pace is not None and trial.state == "timed":  # others took few samples
            self.paces.append(trial.pace)
        if trial.state == "timed" and time_us(trial) < (
            time_us(self.best) if self.best else float("inf")
        ):
            self.best = trial
        if trial.takes_over or (self.control is None and trial is self.best):
            self.control = trial

    def ahead(self, runner: CandidateRunner) -> Iterator[Proposal]:
        """The points, each of them prepared as many trials ahead as the runner can use."""
        while True:
            while len(self._asked) <= runner.ahead and self._has_budget():
                proposal = self._proposals.next()
                if proposal is None:
                    break
                self._asked.append(proposal)
                runner.prepare(list(self.space.schedule(proposal[0]).to_json()))
            if not self._asked:
                return
            yield self._asked.popleft()

    def _has_budget(self) -> bool:
        return len(self.trials) + len(self._asked) < self.request.trials

    def run(self, runner: CandidateRunner, point: Point, origin: str) -> TrialRecord:
        """Try one point and keep the trial, whatever came of it."""
        number = self.trials[-1].number + 1 if self.trials else 0
        best_s = time_us(self.best) / 1e6 if self.best else None
        steps = list(self.space.schedule(point).to_json())
        control = None
        if self.control is not None:
            control = {
                "steps": list(self.control.schedule.to_json()),
                "seconds": time_us(self.control) / 1e6,
            }
        trial = attempt(
            lambda: runner.trial(steps, best_s, control), self.space, number, point, origin
        )
        self.store.add(trial)
        self._take_in(trial)
        if control is not None and trial.pace is None and trial.state == "timed":
            self.control = None  # it does not run any more; the next to be the best replaces it
        self._proposals.learn(trial)
        return trial

    def ranking(self) -> list[TrialRecord]:
        """The trials that ran, the fastest first."""
        return sorted((t for t in self.trials if t.measurement), key=time_us)
