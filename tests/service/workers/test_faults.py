from functools import partial

import pytest

from tests.brief import FINALS_S
from tests.search.engine.faults import propose_rows
from tests.search.registers import register_of
from tests.search.runner import faulty_child
from tests.service.conftest import PROBLEM
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import tune
from tilewise.search.runner.runner import Runner, RunnerLimits
from tilewise.service.db import reading
from tilewise.service.jobs import queue
from tilewise.service.jobs.trial_store import SqlTrialStore

FAULTS = {
    faulty_child.HANG: "timeout",
    faulty_child.CRASH: "crash",
    faulty_child.EAT: "memory",
    faulty_child.RAISE: "runtime",
    faulty_child.EXIT: "crash",
}


class Impatient(Runner):
    def _ask(self, request, limit_s, kind):
        steps = request.get("steps")
        hangs = steps and register_of(Schedule.from_json(steps)).rows == faulty_child.HANG
        return super()._ask(request, 1.0 if hangs else limit_s, kind)


@pytest.mark.full
def test_each_fault_is_stored_with_its_class_and_the_job_is_done(
    sessions, submit, run, monkeypatch
):
    rows = [1, *FAULTS, 8, faulty_child.WRONG]

    def runner(problem, target, request):
        limits = RunnerLimits(trial_s=120.0, setup_s=120.0, memory_bytes=900 << 20)
        return Impatient(problem, target, request.seed, limits, "tests.search.runner.faulty_child")

    propose_rows(monkeypatch, parse_problem(PROBLEM), rows)
    monkeypatch.setattr("tilewise.search.final_benchmark.benchmark.FINALS_S", FINALS_S)
    monkeypatch.setattr("tilewise.service.workers.job_run.resolve", lambda _target: detect())
    job_id = submit(PROBLEM, trials=len(rows))
    assert run(job_id, tuner=partial(tune, make_runner=runner)).state == "done"
    ends = [t.failure for t in SqlTrialStore(sessions, job_id).trials()]
    assert ends == [None, *FAULTS.values(), None, "wrong"]
    with reading(sessions) as session:
        assert queue.counts(session, job_id)["failed"] == len(FAULTS) + 1
