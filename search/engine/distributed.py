"""Distributed search: workers try candidates of the leader's study.

Twice as many candidates are out as there are workers, so that each has the next one ready. None is
out before the leader has timed one, the first control.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from tilewise.kernels.problem import Problem
from tilewise.kernels.system.files import require_cache_dir
from tilewise.kernels.target.model import Target
from tilewise.search.engine.exploration import Exploration, attempt
from tilewise.search.helpers import Exchanged, Helpers, Leader, RemoteTrial
from tilewise.search.records import TrialRecord, TuneRequest
from tilewise.search.runner.runner import Runner, RunnerFactory, local_runner

EACH = 2  # candidates that are out for each helper
LOOK_S = 0.5  # between two looks whether there are helpers
WAIT_S = 0.05  # between two looks for the last trials
LATE_S, LATE_TIMES = 15.0, 10  # as long as so many trials, a candidate is late


@dataclass
class SearchLeader:
    """The leader's exchange with its workers; a context manager."""

    search: Exploration
    runner: Runner
    helpers: Helpers
    on_trial: Callable[[TrialRecord, TrialRecord | None], None] | None = None
    _count: int = field(default=0, init=False)
    _looked_s: float = field(default=float("-inf"), init=False)
    _took_s: list[float] = field(default_factory=list, init=False)

    def __enter__(self) -> "SearchLeader":
        self._thread = ThreadPoolExecutor(1, "helpers")
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def took(self, seconds: float) -> None:
        """Record how long a trial of this machine took."""
        self._took_s.append(seconds)

    def meanwhile(self) -> Callable[[], bool] | None:
        """Start a due exchange while this machine tries a candidate.

        Returns a function that takes in the outcome, to call before that trial is numbered.
        """
        search = self.search
        is_due = time.monotonic() >= self._looked_s + LOOK_S
        if search.best is None or not (self._count or search.out or is_due):
            return None
        begun = self._thread.submit(self._exchange, search.next_number, self._offered(), [])
        return partial(self._take_in, begun)

    def is_under_way(self) -> bool:
        """Return whether workers still try candidates; withdraw the last one."""
        out = self.search.out
        if not out:
            return False
        begun = self._thread.submit(self._exchange, self.search.next_number, [], [max(out)])
        if not self._take_in(begun):
            time.sleep(WAIT_S)
        return True

    def _offered(self) -> list[RemoteTrial]:
        offered = list[RemoteTrial]()
        while len(self.search.out) < EACH * self._count and (more := self.search.offer()):
            offered.append(more)
        return offered

    def _exchange(
        self, start: int, offered: Sequence[RemoteTrial], back: Sequence[int]
    ) -> Exchanged:
        late_s = max(LATE_S, LATE_TIMES * median(self._took_s or [0.0]))
        return self.helpers.exchange(start, offered, back, late_s)

    def _take_in(self, begun: "Future[Exchanged]") -> bool:
        """Learn from an exchange; return whether anything was new."""
        search, found = self.search, begun.result()
        self._count, self._looked_s = found.helpers, time.monotonic()
        for helped in found.helped:
            trial = search.take_in(helped)
            if self.on_trial:
                self.on_trial(trial, search.best)
        mine = sorted(set(search.out) - set(found.out))
        for number in mine:
            search.take_back(number, self.runner)
        return bool(found.helped or mine)


FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5


def run_worker(
    problem: Problem,
    target: Target,
    request: TuneRequest,
    leader: Leader,
    *,
    make_runner: RunnerFactory = local_runner,
) -> int:
    """Try candidates until the search needs no help; return how many were tried.

    Raises CacheError if code cannot be kept, RunnerError if no child process starts.
    """
    require_cache_dir()
    count, answer, pause_s = 0, None, FIRST_PAUSE_S
    prepared = set[int]()
    with make_runner(problem, target.canonical, request) as runner:
        most = 2 if runner.ahead else 1  # the next is compiled while one is timed
        while (given := leader.help(answer, most)) is not None:
            for candidate in given:
                if candidate.number not in prepared:
                    prepared.add(candidate.number)
                    runner.prepare(candidate.steps)
            if not given:
                answer = None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            answer, pause_s = attempt(runner.trial, given[0], problem.flops), FIRST_PAUSE_S
            count += 1
    return count
