"""A search by its budget, its store, its control and its finals; through IREE too."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from optuna.samplers import RandomSampler

from benchmarks.memory_store import MemoryStore
from tests.search.engine import fakes
from tests.short_timings import FINAL_S
from tilewise.kernels.mlir.tuning_spec.config import Configuration
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.search.engine.exploration import Exploration
from tilewise.search.engine.tune import local_runner, tune
from tilewise.search.errors import BudgetError
from tilewise.search.final_benchmark import benchmark
from tilewise.search.final_benchmark.benchmark import CONTENDERS, FINALISTS
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.records import DEFAULT_SAMPLER, TrialRecord, TuneRequest
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner
from tilewise.search.space.space import Space
from tilewise.search.timing.samples import summarise
from tilewise.search.timing.speed_factor import WORTH


def test_spends_the_budget_and_times_nothing_twice() -> None:
    store, seen = MemoryStore(), []
    result, runner, _ = fakes.run(
        TuneRequest(trials=80), store,
        on_trial=lambda trial, best: seen.append((trial.number, len(store.trials()), bool(best))),
    )  # fmt: skip
    assert seen == [(n, n + 1, True) for n in range(80)], "each is stored before it is seen"
    assert len(set(runner.hashes)) == 80
    assert [t.number for t in result.trials] == list(range(80))
    assert {t.origin for t in result.trials} == {"prior", DEFAULT_SAMPLER}
    assert result.complete and result.best is not None
    fastest = min(runner.seconds(t.schedule) for t in result.trials)
    assert result.best.measurement.time_us == pytest.approx(fastest * 1e6)
    assert len(result.best.runners_up) == FINALISTS - 1


def test_anybodys_sampler_by_name_and_any_instance_propose() -> None:
    named, *_ = fakes.run(TuneRequest(trials=14, sampler="optuna.samplers:RandomSampler"))
    assert named.trials[-1].origin == "optuna.samplers:RandomSampler"
    sampler = RandomSampler(seed=3)
    given, *_ = fakes.run(TuneRequest(trials=14), sampler=sampler)
    assert given.trials[-1].origin == "RandomSampler"


def test_a_failure_costs_one_trial_and_is_kept_with_its_class() -> None:
    runner = fakes.FakeRunner()
    runner.failing_rows = 6
    result, *_ = fakes.run(TuneRequest(trials=40), runner=runner)
    failed = [t for t in result.trials if t.state == "failed"]
    assert {(t.failure, t.message) for t in failed} == {("crash", "SIGSEGV")}
    assert len(result.trials) == 40 and result.best is not None
    assert fakes.register_of(result.best.schedule).rows != 6


def test_an_interrupted_search_says_so_and_resumes_where_it_was() -> None:
    store = MemoryStore()
    short, *_ = fakes.run(
        TuneRequest(trials=30), store=store, should_stop=lambda: len(store.trials()) > 9
    )
    assert not short.complete and len(short.trials) == 10 and short.best is not None
    full, runner, _ = fakes.run(TuneRequest(trials=30), store=store)
    assert full.complete and len(runner.hashes) == 20
    assert len({t.schedule.hash for t in full.trials}) == 30
    assert [t.number for t in store.trials()] == list(range(30))


def test_seconds_end_the_search_but_one_candidate_is_always_tried() -> None:
    result, *_ = fakes.run(TuneRequest(trials=1000, seconds=1e-9))
    assert not result.complete and len(result.trials) == 1 and result.best is not None


def test_the_best_is_the_fastest_of_the_finals_whatever_the_trials_said() -> None:
    runner = fakes.FakeRunner()
    slower = runner.seconds
    runner.seconds = lambda schedule: slower(schedule) / 4  # so short that all meet in the finals
    runner.time_finalists = lambda schedules, rounds, *_: fakes.finals_reply(
        [
            fakes.in_turn([[(99 - i) * 1e-3] * rounds], [range(rounds)])
            for i in range(len(schedules))
        ],
        scratch_bytes=tuple({"A": 64, "B": i} for i in range(len(schedules))),
    )
    result, *_ = fakes.run(TuneRequest(trials=20), runner=runner)
    assert result.best.measurement.time_us == pytest.approx((99 - CONTENDERS + 1) * 1e3)
    assert result.best.scratch_bytes == {"A": 64, "B": CONTENDERS - 1}, "that of the winner"
    others = [m.time_us for _, m in result.best.runners_up]
    assert others == sorted(others) and len(others) == FINALISTS - 1
    assert min(others) > result.best.measurement.time_us


@pytest.mark.parametrize("index", [None, 0])
@pytest.mark.parametrize("kind", [fakes.FakeRunner, fakes.Long])
def test_finalists_that_fail_leave_the_rest(
    kind: type[fakes.FakeRunner], index: int | None
) -> None:
    runner = kind()
    runner.finals_fail, runner.failing_final = 2, index
    result, *_ = fakes.run(TuneRequest(trials=20), runner=runner)
    # Of twelve one is replaced; where nobody knows who it was, the first that fails alone goes.
    assert len(result.best.runners_up) == FINALISTS - 1
    timed = sorted((t for t in result.trials if t.measurement), key=lambda t: t.measurement.time_us)
    assert result.best.schedule == timed[2 if index == 0 else 1].schedule


def test_no_candidate_that_runs_means_no_best() -> None:
    runner = fakes.FakeRunner()
    runner.trial = Mock(side_effect=CandidateFailureError("compile", "nothing compiles"))
    result, *_ = fakes.run(TuneRequest(trials=5), runner=runner)
    assert result.best is None and result.count("failed") == 5


@pytest.mark.parametrize(("options", "field"), [
    ({"trials": 0}, "trials"), ({"trials": 10**9}, "trials"), ({"seconds": 0.0}, "seconds"),
    ({"seconds": float("nan")}, "seconds"), ({"seed": -1}, "seed"),
    ({"sampler": "magic"}, "sampler"), ({"sampler": "no module:Class"}, "sampler"),
    ({"sampler": "module:"}, "sampler"), ({"sampler": "m:" + "C" * 200}, "sampler"),
])  # fmt: skip
def test_bad_budgets_name_the_field(options, field: str) -> None:
    with pytest.raises(BudgetError) as caught:
        TuneRequest(**options)
    assert caught.value.field == field


def test_the_process_that_times_has_the_seed_and_the_cache_mode_of_the_request() -> None:
    with local_runner(
        fakes.SQUARE, fakes.TARGET.canonical, TuneRequest(seed=7, cache="cold")
    ) as runner:
        assert isinstance(runner, Runner)
        assert (runner.problem, runner.target) == (fakes.SQUARE, fakes.TARGET.canonical)
        assert (runner.seed, runner.cache) == (7, "cold")


@pytest.mark.full
def test_a_real_search_beats_its_own_first_guess_or_keeps_it(monkeypatch) -> None:
    monkeypatch.setattr(benchmark, "FINAL_S", FINAL_S)
    problem = parse_problem("matmul:m=96,n=112,k=80,dtype=f32")
    result = tune(problem, detect(), TuneRequest(trials=20, peers=True), MemoryStore())
    assert result.best is not None and result.count("failed") == 0
    assert 0.05 < result.best.peak_fraction <= 1.1
    assert result.peers["openblas"].gflops > 0
    assert all(t.max_error is not None and t.samples for t in result.trials)


def test_each_trial_has_about_the_best_before_it_for_a_control() -> None:
    result, runner, _ = fakes.run(TuneRequest(trials=30), runner=fakes.Fluctuating())
    assert runner.controls[0] is None
    best = result.trials[0]
    for trial, control in zip(result.trials[1:], runner.controls[1:], strict=True):
        assert control["steps"] == list(best.schedule.to_json())
        assert control["seconds"] == pytest.approx(fakes.FakeRunner.seconds(best.schedule))
        is_usual = trial.state == "timed" and trial.speed_factor == 1.0
        if is_usual and trial.measurement.time_us < WORTH * best.measurement.time_us:
            best = trial
    for trial in result.trials:
        assert trial.measurement.time_us == pytest.approx(
            1e6 * fakes.FakeRunner.seconds(trial.schedule)
        )
        assert trial.samples[0] == pytest.approx(
            fakes.FakeRunner.seconds(trial.schedule) * (trial.speed_factor or 1.0)
        )
    assert {trial.speed_factor for trial in result.trials} == {None, 1.0, 1.5}


def test_what_is_behind_is_told_by_the_fastest_at_a_usual_pace() -> None:
    result, runner, _ = fakes.run(TuneRequest(trials=30, sampler="local"), runner=fakes.Confused())
    assert runner.to_beat[0] is None
    hasty = 0
    for number, to_beat in enumerate(runner.to_beat[1:], 1):
        before = [t for t in result.trials[:number] if t.state == "timed"]
        steady = min(t.measurement.time_us for t in before if t.speed_factor != 1.5)
        assert to_beat == pytest.approx(steady / 1e6)
        hasty += min(t.measurement.time_us for t in before) < 0.9 * steady
    assert hasty > 1, "some were told too fast"


def test_the_paces_of_a_search_go_into_its_interval() -> None:
    request = TuneRequest(trials=30, sampler="local")  # which speed_factors do not lead elsewhere
    calm, *_ = fakes.run(request)
    disturbed, *_ = fakes.run(request, runner=fakes.Fluctuating())
    known, *_ = fakes.run(request, MemoryStore(speed_factors=[[1.0, 1.0, 1.5, 1.5]] * 9))
    for found in (disturbed, known):
        assert found.best.measurement.gflops == calm.best.measurement.gflops
        assert found.best.measurement.interval[0] < calm.best.measurement.interval[0] / 1.4


SPACE = Space(fakes.SQUARE, fakes.TARGET)
MODEL = AnalyticalModel.shipped(SPACE)
POINTS = prior_points(MODEL, 12)


def trial(number: int, seconds: float, state: str = "timed", factor: float | None = 1.0):
    point = POINTS[number]
    speed = summarise([seconds] * 6, fakes.SQUARE.flops)
    schedule = SPACE.schedule(point)
    known = {"measurement": speed, "speed_factor": factor}
    return TrialRecord(number, schedule, point, state, "prior", **known)


def explored(*trials: TrialRecord, spread: int = 1) -> Exploration:
    """The search that a store with these trials goes on with."""
    store = MemoryStore()
    for one in trials:
        store.add(one)
    return Exploration(MODEL, TuneRequest(trials=40, spread=spread), store, [])


class Answering:
    """A runner whose trials take what they are told to; a control never runs."""

    ahead = 0

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)
        self.controls: list[Any] = []

    def prepare(self, steps: list[Any]) -> None: ...

    def trial(self, steps: list[Any], best_s: float | None, control: Any = None) -> Any:
        self.controls.append(control and control["seconds"])
        return fakes.trial_reply([self.seconds.pop(0)] * 6, speed_factor=None)


@pytest.mark.parametrize(("spread", "number", "factors"), [(1, 2, [1.0] * 3), (8, 0, [])])
def test_the_control_of_a_resumed_search_is_the_first_near_the_luckiest(spread, number, factors):
    stopped = trial(1, 1.05, "pruned")
    timed = [trial(0, 2.0, factor=None), stopped, trial(2, 1.04), trial(3, 1.0), trial(4, 1.02)]
    search = explored(*timed, spread=spread)
    assert search.best is not None and search.control is not None
    assert (search.best.number, search.control.number) == (3, number)
    assert search.speed_factors == factors
    search = explored()
    search._take_in(trial(0, 1.0), "there")
    assert search.best is not None and search.control is None


def test_a_control_that_does_not_run_any_more_makes_way_for_another_as_fast_or_the_best() -> None:
    search = explored(trial(0, 1e-3), trial(1, 1.04e-3))
    runner = Answering(2e-3, 3e-3, 0.5e-3, 0.4e-3)
    for _, proposal in zip(range(4), search.ahead(runner), strict=False):
        search.run(runner, proposal)
    assert runner.controls == [*map(pytest.approx, (1e-3, 1.04e-3)), None, pytest.approx(0.5e-3)]


def test_the_usual_pace_is_that_of_trials_that_were_timed_to_the_end() -> None:
    stopped = trial(2, 3.0, "pruned", factor=1.7)
    search = explored(trial(0, 1.0, factor=None), trial(1, 1.0), stopped, trial(3, 1.1, factor=1.1))
    assert search.speed_factors == [1.0, 1.1]


SMALL = parse_problem("matmul:m=64,n=96,k=40,dtype=f32")
THROUGH_IREE = replace(detect(), kind="iree")


@pytest.mark.full
def test_a_search_times_right_code_and_iree_alone_beside_it() -> None:
    pytest.importorskip("iree.runtime", reason="IREE's runtime is not installed")
    store = MemoryStore()
    result = tune(SMALL, THROUGH_IREE, TuneRequest(trials=4), store)
    assert len(store.trials()) == 4
    assert result.best is not None and isinstance(result.best.schedule, Configuration)
    assert set(result.peers) == {"iree", "iree-dt"}
    assert {trial.failure for trial in result.trials} <= {None, "compile"}


def test_steps_of_our_own_kernels_are_refused() -> None:
    pytest.importorskip("iree.runtime", reason="IREE's runtime is not installed")
    levels = (("distribution", "m", 64), ("vector_common_parallel", "m", 64),
              ("vector_common_parallel", "n", 96), ("vector_reduction", "k", 40))  # fmt: skip
    steps = [{"step": "level", "at": at, "dim": dim, "size": size} for at, dim, size in levels]
    steps.append({"step": "pipeline", "passes": "DoubleTilingExpert", "remainders": "masked"})
    with Runner(SMALL, THROUGH_IREE.canonical) as runner:
        with pytest.raises(CandidateFailureError) as failed:
            runner.trial([*steps, {"step": "unroll", "factor": 4}], None)
        assert failed.value.kind == "constraint"
