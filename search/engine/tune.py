"""The search: prior, near problems, sampler, final benchmark; resumed from the store."""

import time
from collections.abc import Callable
from contextlib import nullcontext

from optuna.samplers import BaseSampler

from tilewise.kernels.native.measured_rates import with_rates
from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem import Problem
from tilewise.kernels.system.files import require_cache_dir
from tilewise.kernels.target.model import Target
from tilewise.search.budget import Budget
from tilewise.search.engine.distributed import SearchLeader
from tilewise.search.engine.exploration import Exploration
from tilewise.search.final_benchmark.benchmark import FinalBenchmark
from tilewise.search.helpers import Helpers
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.levels import LevelModel, level_starts
from tilewise.search.progress import OnPhase
from tilewise.search.records import TrialRecord, TuneRequest, TuneResult
from tilewise.search.runner.runner import Runner, RunnerFactory, local_runner
from tilewise.search.space.space import Space
from tilewise.search.store import TrialStore
from tilewise.search.timing.cold import evicting_s
from tilewise.search.transfer.nearness import near_searches
from tilewise.search.transfer.starting_points import starting_points, warmed

OnTrial = Callable[[TrialRecord, TrialRecord | None], None]
BeforeFinal = Callable[[list[TrialRecord], float | None], None]
"""Called with the trials that ran, the fastest first, and the moment of `time.monotonic` by which
it should have ended, if any."""


def tune(
    problem: Problem,
    target: Target,
    request: TuneRequest,
    store: TrialStore,
    *,
    on_trial: OnTrial | None = None,
    should_stop: Callable[[], bool] | None = None,
    before_final: BeforeFinal | None = None,
    on_phase: OnPhase | None = None,
    make_runner: RunnerFactory = local_runner,
    sampler: BaseSampler | None = None,
    helpers: Helpers | None = None,
) -> TuneResult:
    """Search for the fastest schedule of `problem` on `target`, this machine.

    Each trial is stored before it counts. A budget in seconds includes the final benchmark.
    `on_trial` gets each new trial and the best so far, `should_stop` is called between trials,
    `before_final` is described at its type. `sampler` replaces that of the request;
    `helpers` are workers of the same target.

    Raises CacheError if code cannot be kept, RunnerError if no child process starts, BudgetError
    for an unavailable sampler, UnsupportedError if no tuning spec covers `problem`.
    """
    require_cache_dir()
    cold_s = evicting_s(target) if request.cache == "cold" else 0.0
    budget = Budget(request, time.monotonic(), evicting_s=cold_s)
    search = _begin(problem, target, request, store, sampler)
    with make_runner(problem, target.canonical, request) as runner:
        leading = SearchLeader(search, runner, helpers, on_trial) if helpers else nullcontext()
        with leading as leader:
            complete = _explore(search, runner, budget, on_trial, should_stop, leader)
        runner.settle()
        if before_final and search.best:
            before_final(search.ranking(), budget.final_begins)
        final = FinalBenchmark(
            problem,
            request.peers or target.kind == "iree",  # whose own modes tell a spec's gain
            runner,
            budget,
            speed_factors=search.speed_factors,
            earlier=store.earlier_speed_factors(),
            threads=target.threads,
            evicting_s=cold_s,
            should_stop=should_stop,
            on_phase=on_phase,
        )
        best, peers = final.run([t for t in search.ranking() if t.state == "timed"])
        trials = search.settled(final.scale)
    return TuneResult(best, trials, budget.spent_s, complete, peers, final.failure)


def _begin(
    problem: Problem,
    target: Target,
    request: TuneRequest,
    store: TrialStore,
    sampler: BaseSampler | None,
) -> Exploration:
    """Return the initial search for the target's kind."""
    if target.kind == "iree":
        levels = LevelModel(Space(problem, target))
        starts = starting_points(levels, near_searches(levels.space, store))
        return Exploration(levels, request, store, starts, level_starts(levels), sampler=sampler)
    space = Space(problem, with_rates(target, nest_of(problem).factors))
    model, starts = warmed(AnalyticalModel.shipped(space), store)
    return Exploration(model, request, store, starts, sampler=sampler)


def _explore(
    search: Exploration,
    runner: Runner,
    budget: Budget,
    on_trial: OnTrial | None,
    should_stop: Callable[[], bool] | None,
    leader: SearchLeader | None,
) -> bool:
    """Try candidates until the budget is spent; return False if it ended early.

    The next candidates compile while one is timed, so the sampler proposes a few trials ahead.
    """

    def is_over() -> bool:
        # However short the time, one candidate is tried, so that there is a result.
        return bool(should_stop and should_stop()) or (
            bool(search.trials) and budget.search_is_over()
        )

    while True:
        for proposal in search.ahead(runner):
            if is_over():
                return False
            begun = time.monotonic()
            trial = search.run(runner, proposal, leader.meanwhile() if leader else None)
            took_s = time.monotonic() - begun
            budget.took(took_s)
            budget.start_s = runner.start_s
            if on_trial:
                on_trial(trial, search.best)
            if leader:
                leader.took(took_s)
        if not (leader and leader.is_under_way()):
            return True
        if is_over():
            return False
