"""Real processes on loopback: what dies costs no finished trial, and what is cancelled ends."""

import signal
import time

import psutil
import pytest

from kernels.problem import parse_problem
from tests.service.cluster.farm import Farm
from tests.service.cluster.tuners import CRASHING, HANGING, REAL, STEADY
from tests.service.conftest import PROBLEM
from tests.service.processes import wait_until

NAMES = ("scheduler", "worker-1", "worker-2", "service", "driver")


@pytest.fixture(scope="module")
def farm(tmp_path_factory):
    made = Farm(tmp_path_factory.mktemp("farm"), NAMES)
    try:
        made.wait_for_workers(2)
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def logs(farm, request):
    """What the processes have said stands in the report of a test that fails."""
    before = request.session.testsfailed
    yield
    if request.session.testsfailed > before:
        print(farm.told())


def is_done(farm, job_id):
    job = farm.job(job_id)
    assert job["state"] != "failed", job["error"]
    return job["state"] == "done"


def numbers(farm, problem):
    """The trials of a problem that were acknowledged, in that order."""
    return [int(line.split()[1]) for line in farm.noted() if line.startswith(f"{problem} ")]


def problem(number):
    return parse_problem(f"{PROBLEM},batch={number}").canonical


def has_ended(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_two_jobs_run_on_two_workers_at_once(farm):
    jobs = [farm.ask(problem(n), seed=STEADY, trials=30) for n in (2, 3)]
    wait_until(lambda: len(farm.runs()) == 2)
    wait_until(lambda: all(is_done(farm, job) for job in jobs))
    for n in (2, 3):
        assert numbers(farm, problem(n)) == list(range(30))


def test_a_cancelled_job_is_ended_in_the_middle_of_a_trial_that_hangs(farm):
    job = farm.ask(problem(4), seed=HANGING)
    wait_until(lambda: farm.job(job)["trials"]["timed"] == 1)
    (run,) = farm.runs()
    farm.client.delete(f"/v1/jobs/{job}")
    wait_until(lambda: has_ended(run))
    assert farm.job(job)["state"] == "cancelled"


def test_a_job_that_kills_its_workers_process_fails_with_the_reason(farm):
    job = farm.ask(problem(5), seed=CRASHING)
    wait_until(lambda: farm.job(job)["state"] == "failed")
    assert farm.job(job)["error"] == "the worker died 3 times; the last time: signal SIGABRT"


def test_no_death_of_worker_scheduler_or_driver_costs_a_finished_trial(farm):
    job = farm.ask(problem(6), seed=STEADY, trials=160)

    def goes_on(count):
        wait_until(lambda: len(numbers(farm, problem(6))) >= count)

    goes_on(5)
    (run,) = farm.runs()
    worker = next(name for name in NAMES if farm.processes[name].pid == run.ppid())
    farm.kill_and_start(worker)
    wait_until(lambda: has_ended(run))
    for name in ("scheduler", "driver"):
        so_far = len(numbers(farm, problem(6)))
        goes_on(so_far + 5)
        farm.kill_and_start(name)
        assert not is_done(farm, job)
    so_far = len(numbers(farm, problem(6)))
    goes_on(so_far + 5)
    farm.send("service", signal.SIGSTOP)
    time.sleep(1.0)
    farm.send("service", signal.SIGCONT)
    wait_until(lambda: is_done(farm, job), 120)
    done = numbers(farm, problem(6))
    assert sorted(done) == list(range(160)), "each was acknowledged once"
    assert farm.job(job)["trials"]["timed"] == 160
    farm.wait_for_workers(2)


def test_a_real_search_runs_on_a_worker(farm):
    job = farm.ask("matmul:m=32,n=32,k=32,dtype=f32", seed=REAL, trials=2)
    wait_until(lambda: is_done(farm, job), 120)
    found = farm.job(job)
    assert found["best"]["gflops"] > 0 and sum(
        found["trials"][state] for state in ("timed", "pruned", "failed")) == 2  # fmt: skip
