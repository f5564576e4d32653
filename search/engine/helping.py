"""What a helper does: tries candidates of a search that another machine leads."""

import time

from tilewise.kernels.problem import Problem
from tilewise.kernels.system.cache_folder import require_cache_dir
from tilewise.kernels.target.model import Target
from tilewise.search.engine.attempt import attempt
from tilewise.search.engine.tune import RunnerFactory, local_runner
from tilewise.search.helpers import Candidate, Leader
from tilewise.search.records import TrialRecord, TuneRequest
from tilewise.search.runner.interface import TrialRunner

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5


def help_out(
    problem: Problem,
    target: Target,
    request: TuneRequest,
    leader: Leader,
    *,
    make_runner: RunnerFactory = local_runner,
) -> int:
    """Try candidates until the search needs no help any more.

    Args:
        problem: what to compute.
        target: where; this machine.
        request: seed and cache mode.
        leader: gives candidates, and takes what came of them.
        make_runner: starts the process that runs candidates.

    Returns:
        How many were tried.

    Raises:
        CacheError: compiled code cannot be kept.
        RunnerError: no child process could be started.
    """
    require_cache_dir()
    count, answer, pause_s = 0, None, FIRST_PAUSE_S
    with make_runner(problem, target.canonical, request) as runner:
        held = _Held(runner)
        while (given := leader.help(answer, held.most)) is not None:
            candidate = held.next_of(given)
            if candidate is None:
                answer = None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            answer, pause_s = _tried(runner, candidate, problem.flops), FIRST_PAUSE_S
            count += 1
    return count


def _tried(runner: TrialRunner, candidate: Candidate, flops: int) -> TrialRecord:
    steps, best_s, control = candidate.steps, candidate.best_s, candidate.control
    return attempt(lambda: runner.trial(steps, best_s, control), candidate, flops)


class _Held:
    """The candidates that this machine has, the next of which is compiled while one is timed."""

    def __init__(self, runner: TrialRunner) -> None:
        self._runner = runner
        self._prepared: set[int] = set()

    @property
    def most(self) -> int:
        """How many it has use for."""
        return 2 if self._runner.ahead else 1

    def next_of(self, given: list[Candidate]) -> Candidate | None:
        """The first of all that are held; each is prepared once."""
        for candidate in given:
            if candidate.number not in self._prepared:
                self._prepared.add(candidate.number)
                self._runner.prepare(candidate.steps)
        return given[0] if given else None
