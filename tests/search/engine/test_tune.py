"""A search by its budget, its store and its finals."""

import pytest
from optuna.samplers import RandomSampler

from tests.brief import FINALS_S
from tests.search.engine.fakes import SQUARE, TARGET, FakeRunner, Long, register_of, run
from tests.search.replies import finals_reply, in_turn
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import local_runner, tune
from tilewise.search.errors import BudgetError
from tilewise.search.final_benchmark import benchmark
from tilewise.search.final_benchmark.benchmark import CONTENDERS, FINALISTS
from tilewise.search.records import DEFAULT_SAMPLER, TrialRecord, TuneRequest
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner
from tilewise.search.store import MemoryStore


def test_spends_the_budget_and_times_nothing_twice() -> None:
    result, runner, _ = run(TuneRequest(trials=80))
    assert len(result.trials) == 80
    assert len(set(runner.hashes)) == 80
    assert [t.number for t in result.trials] == list(range(80))
    assert {t.origin for t in result.trials} == {"prior", DEFAULT_SAMPLER}
    assert result.complete
    assert result.best is not None
    fastest = min(runner.seconds(t.schedule) for t in result.trials)
    assert result.best.measurement.time_us == pytest.approx(fastest * 1e6)
    assert len(result.best.runners_up) == FINALISTS - 1


def test_anybodys_sampler_by_name_and_any_instance_propose() -> None:
    named, *_ = run(TuneRequest(trials=14, sampler="optuna.samplers:RandomSampler"))
    assert named.trials[-1].origin == "optuna.samplers:RandomSampler"
    sampler = RandomSampler(seed=3)
    given, *_ = run(TuneRequest(trials=14), sampler=sampler)
    assert given.trials[-1].origin == "RandomSampler"


@pytest.mark.parametrize("sampler", [DEFAULT_SAMPLER, "random"])
def test_same_seed_same_trials(sampler: str) -> None:
    def hashes(seed: int) -> list[str]:
        result, *_ = run(TuneRequest(trials=40, seed=seed, sampler=sampler))
        return [trial.schedule.hash for trial in result.trials]

    assert hashes(3) == hashes(3)
    if sampler == "random":  # the default can come to the same whatever it draws
        assert hashes(3) != hashes(4)


def test_a_failure_costs_one_trial_and_is_kept_with_its_class() -> None:
    runner = FakeRunner()
    runner.failing_rows = 6
    result, *_ = run(TuneRequest(trials=40), runner=runner)
    failed = [t for t in result.trials if t.state == "failed"]
    assert failed
    assert {(t.failure, t.message) for t in failed} == {("crash", "SIGSEGV")}
    assert len(result.trials) == 40
    assert result.best is not None
    assert register_of(result.best.schedule).rows != 6


def test_stored_trials_count_and_are_not_timed_again() -> None:
    store = MemoryStore()
    run(TuneRequest(trials=25), store=store)
    result, runner, _ = run(TuneRequest(trials=40), store=store)
    assert len(runner.hashes) == 15
    assert len({t.schedule.hash for t in result.trials}) == 40
    assert [t.number for t in store.trials()] == list(range(40))


def test_an_interrupted_search_says_so_and_resumes_where_it_was() -> None:
    store = MemoryStore()
    short, *_ = run(
        TuneRequest(trials=30), store=store, should_stop=lambda: len(store.trials()) > 9
    )
    assert not short.complete
    assert len(short.trials) == 10
    assert short.best is not None
    full, runner, _ = run(TuneRequest(trials=30), store=store)
    assert full.complete
    assert len(runner.hashes) == 20


def test_seconds_end_the_search_but_one_candidate_is_always_tried() -> None:
    result, *_ = run(TuneRequest(trials=1000, seconds=1e-9))
    assert not result.complete
    assert len(result.trials) == 1
    assert result.best is not None


def test_the_best_is_the_fastest_of_the_finals_whatever_the_trials_said() -> None:
    runner = FakeRunner()
    slower = runner.seconds
    runner.seconds = lambda schedule: slower(schedule) / 4  # so short that all meet in the finals
    runner.finals = lambda schedules, rounds, *_: finals_reply(
        [in_turn([[(99 - i) * 1e-3] * rounds], [range(rounds)]) for i in range(len(schedules))],
        scratch_bytes=tuple({"A": 64, "B": i} for i in range(len(schedules))),
    )
    result, *_ = run(TuneRequest(trials=20), runner=runner)
    assert result.best is not None
    assert result.best.measurement.time_us == pytest.approx((99 - CONTENDERS + 1) * 1e3)
    assert result.best.scratch_bytes == {"A": 64, "B": CONTENDERS - 1}, "that of the winner"
    others = [m.time_us for _, m in result.best.runners_up]
    assert others == sorted(others) and len(others) == FINALISTS - 1
    assert min(others) > result.best.measurement.time_us


@pytest.mark.parametrize("index", [None, 0])
@pytest.mark.parametrize("kind", [FakeRunner, Long])
def test_finalists_that_fail_leave_the_rest(kind: type[FakeRunner], index: int | None) -> None:
    runner = kind()
    runner.finals_fail, runner.failing_final = 2, index
    result, *_ = run(TuneRequest(trials=20), runner=runner)
    assert result.best is not None
    # Of twelve one is replaced; where nobody knows who it was, those that trail go with it.
    assert len(result.best.runners_up) == FINALISTS - (1 if index == 0 else 2)
    timed = sorted((t for t in result.trials if t.measurement), key=lambda t: t.measurement.time_us)
    assert result.best.schedule == timed[2 if index == 0 else 0].schedule


def test_no_candidate_that_runs_means_no_best() -> None:
    runner = FakeRunner()
    runner.trial = lambda *_: (_ for _ in ()).throw(
        CandidateFailureError("compile", "nothing compiles")
    )
    result, *_ = run(TuneRequest(trials=5), runner=runner)
    assert result.best is None
    assert result.count("failed") == 5


def test_callbacks_see_each_trial_after_it_is_stored() -> None:
    store = MemoryStore()
    seen: list[tuple[int, int]] = []

    def on_trial(trial: TrialRecord, best: TrialRecord | None) -> None:
        seen.append((trial.number, len(store.trials())))
        assert best is not None

    run(TuneRequest(trials=14), store=store, on_trial=on_trial)
    assert seen == [(n, n + 1) for n in range(14)]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"trials": 0}, "trials"),
        ({"trials": 10**9}, "trials"),
        ({"seconds": 0.0}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seed": -1}, "seed"),
        ({"sampler": "magic"}, "sampler"),
        ({"sampler": "no module:Class"}, "sampler"),
        ({"sampler": "module:"}, "sampler"),
        ({"sampler": "m:" + "C" * 200}, "sampler"),
    ],
)
def test_bad_budgets_name_the_field(options, field: str) -> None:
    with pytest.raises(BudgetError) as caught:
        TuneRequest(**options)
    assert caught.value.field == field


def test_the_process_that_times_has_the_seed_and_the_cache_mode_of_the_request() -> None:
    with local_runner(SQUARE, TARGET.canonical, TuneRequest(seed=7, cache="cold")) as runner:
        assert isinstance(runner, Runner)
        assert (runner.problem, runner.target) == (SQUARE, TARGET.canonical)
        assert (runner.seed, runner.cache) == (7, "cold")


@pytest.mark.full
def test_a_real_search_beats_its_own_first_guess_or_keeps_it(monkeypatch) -> None:
    monkeypatch.setattr(benchmark, "FINALS_S", FINALS_S)
    problem = parse_problem("matmul:m=96,n=112,k=80,dtype=f32")
    result = tune(problem, detect(), TuneRequest(trials=20, peers=True), MemoryStore())
    assert result.best is not None
    assert result.count("failed") == 0
    assert 0.05 < result.best.peak_fraction <= 1.1
    assert result.peers["openblas"].gflops > 0
    assert all(t.max_error is not None and t.samples for t in result.trials)
