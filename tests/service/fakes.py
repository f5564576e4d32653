"""A search and a prover without compilers, for this process and for worker children."""

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.problem import Matmul, Problem
from tilewise.kernels.schedule import Register, Schedule, Tile, Unroll
from tilewise.kernels.target import Target
from tilewise.search.progress import SearchPhase
from tilewise.search.records import Measurement, TrialRecord, TuneRequest, TuneResult, Winner
from tilewise.search.store import TrialStore

# Where `slow_tune` notes each trial that it times; the children inherit it.
LOG = "TEST_FAKES_LOG"


def schedule(number: int = 0) -> Schedule:
    return Schedule((Register(rows=number % 14 + 1, cols=16), Unroll(number // 14 + 1)))


FLOPS = 196_608  # of `tests.service.conftest.PROBLEM`


def measurement(gflops: float, flops: float = FLOPS) -> Measurement:
    return Measurement(gflops, (gflops * 0.99, gflops * 1.01), flops / gflops / 1e3)


def trial(number: int, *, gflops: float = 50.0, flops: float = FLOPS) -> TrialRecord:
    return TrialRecord(
        number=number, schedule=schedule(number), state="timed", origin="prior",
        params={"rows": number + 1, "outer": "cols", "pack": True},
        measurement=measurement(gflops, flops), samples=(0.1, 1 / 3, 1.5e-05), speed_factor=1.25,
        rejected=2, compile_s=0.25, max_error=0.125,
    )  # fmt: skip


def trial_of(problem: Matmul, number: int, *, gflops: float = 50.0) -> TrialRecord:
    """A trial whose schedule is legal for a product of any batch."""
    made = trial(number, gflops=gflops, flops=problem.flops)
    if problem.batch == 1:
        return made
    return replace(made, schedule=Schedule((Tile("batch", 1), *made.schedule.steps)))


def failed_trial(number: int) -> TrialRecord:
    return TrialRecord(
        number=number, schedule=schedule(number), params={}, state="failed", origin="tpe",
        failure="crash", message="signal 11", max_error=inf,
    )  # fmt: skip


def tune(
    problem: Problem,
    target: Target,
    request: TuneRequest,
    store: TrialStore,
    *,
    on_trial: Callable[[TrialRecord, TrialRecord | None], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    before_final: Callable[[list[TrialRecord], float | None], None] | None = None,
    on_phase: Callable[[SearchPhase], None] | None = None,
    pause_s: float = 0.0,
    peak_of: float = 100.0,
) -> TuneResult:
    """Trials in order, each faster than the last; those stored already are not timed again."""
    done = {record.number for record in store.trials()}
    for number in range(request.trials):
        if number in done:
            continue
        if should_stop is not None and should_stop():
            break
        time.sleep(pause_s)
        _note(problem, number)
        record = trial(number, gflops=10.0 + number)
        store.add(record)
        if on_trial is not None:
            on_trial(record, record)
    records = tuple(store.trials())
    ranked = sorted(records, key=lambda r: -(r.measurement.gflops if r.measurement else 0))
    if before_final is not None and ranked:
        before_final(ranked, None)
    if on_phase is not None:
        on_phase(SearchPhase("finals", 0, 0))
    finalists = [(r.schedule, r.measurement) for r in ranked[:3] if r.measurement]
    scratch = {"A": 64, "B": 4096}
    others = tuple(finalists[1:])
    best = Winner(*finalists[0], peak_of, others, scratch, 21, 6, 2) if finalists else None
    peers = {"openblas": measurement(97.0)} if request.peers else {}
    return TuneResult(best, records, 0.5, len(records) == request.trials, peers)


def _note(problem: Problem, number: int) -> None:
    log = os.environ.get(LOG)
    if log:
        with Path(log).open("a") as file:
            file.write(f"{problem.canonical} {number}\n")


def slow_tune(*given, on_trial=None, should_stop=None, **_hooks):
    return tune(*given, on_trial=on_trial, should_stop=should_stop, pause_s=0.1)


def direct_tune(problem, target, request, store, *, on_trial=None, before_final=None, **_hooks):
    """Real schedules, those that the model likes best, each slower than the one before."""
    from tilewise.search.model.prior import direct_schedules

    for number, made in enumerate(direct_schedules(problem, target, request.trials)):
        store.add(replace(trial(number, gflops=90.0 - number), schedule=made))
    records = tuple(store.trials())
    if before_final is not None:
        before_final(list(records), None)
    best = Winner(records[0].schedule, records[0].measurement, 100.0, (), {}, 21, 6, 2)
    return TuneResult(best, records, 0.1, True)


def hanging_tune(_problem, _target, _request, store, **_hooks):
    store.add(trial(0))
    time.sleep(600)


def spawning_tune(_problem, _target, _request, store, **_hooks):
    """Leaves a process behind, as a runner that hangs does."""
    child = subprocess.Popen(["sleep", "600"])
    store.add(replace(trial(0), params={"pid": child.pid}))
    time.sleep(600)


def crashing_tune(*_given, **_hooks):
    os.abort()


def unsupported_tune(*_given, **_hooks):
    raise UnsupportedError("matmul: transpose_a is not covered yet", "transpose_a")


def fruitless_tune(_problem, _target, _request, store, **_hooks):
    store.add(failed_trial(0))
    return TuneResult(None, tuple(store.trials()), 0.1, True)


@dataclass(frozen=True)
class FakeProof:
    applied: bool = True
    executed: bool = True
    ok: bool = True
    max_error: float | None = 0.25
    tolerance: float | None = 0.5
    gflops: float | None = 40.0
    interval: tuple[float, float] | None = (39.0, 41.0)
    time_us: float | None = FLOPS / 40.0 / 1e3
    mlir: str = "iree-base-compiler 3.13.0"
    failure: str | None = None
    message: str = ""
    script: str | None = "module {}"


def prove(problem: Problem, schedule: Schedule, **_how: Any) -> FakeProof:
    proof = FakeProof(time_us=problem.flops / 40.0 / 1e3)
    return replace(proof, script=emit_script(problem, schedule))


def prove_wrong(problem: Problem, schedule: Schedule, **_how: Any) -> FakeProof:
    told = {"gflops": 900.0, "max_error": inf, "failure": "wrong", "message": "off by inf"}
    return replace(prove(problem, schedule), ok=False, **told)


def prove_unapplied(*_given: Any, **_how: Any) -> FakeProof:
    unknown = dict.fromkeys(("max_error", "gflops", "interval", "time_us", "script"))
    told = {"failure": "apply", "message": "the script does not parse"}
    return FakeProof(applied=False, executed=False, ok=False, **told, **unknown)
