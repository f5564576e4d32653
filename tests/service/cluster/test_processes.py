"""Real processes over TLS: what dies costs no finished trial, and what is cancelled ends."""

import random
import re
import signal

import psutil
import pytest

from tests.service.api.plans.modules import MODULE
from tests.service.cluster import certificates, chaos, kept, mixed_targets
from tests.service.cluster.chaos import Plan
from tests.service.cluster.farm import Farm, arguments
from tests.service.cluster.injected import faults
from tests.service.cluster.tuners import HANGING, INJECTED, REAL, SIMULATED, SPREAD, STEADY
from tests.service.conftest import PROBLEM
from tests.service.processes import wait_until
from tilewise.kernels.problem import parse_problem
from tilewise.service.cluster.connection import DaskCluster
from tilewise.service.errors import UnreachableError

WORKERS = ("worker-1", "worker-2")
NAMES = ("scheduler", *WORKERS, "service", "driver")


@pytest.fixture(scope="module")
def server(new_postgresql_folder):
    """A PostgreSQL of this module's own, to be killed and frozen; None where there is none."""
    try:
        from benchmarks.surviving.server import Server
    except ImportError:
        yield None
        return
    with Server(new_postgresql_folder(), ["fsync=off"]) as started:
        yield started


@pytest.fixture(scope="module")
def farm(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("farm")
    configured = certificates.configured(folder)
    options = certificates.variables(configured)
    made = Farm(folder, NAMES, server, uses_tls=True, **options)
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


@pytest.mark.full
def test_two_jobs_run_on_two_workers_at_once(farm):
    jobs = [farm.ask(problem(n), seed=STEADY, trials=30) for n in (2, 3)]
    wait_until(lambda: len(farm.runs()) == 2)
    wait_until(lambda: all(is_done(farm, job) for job in jobs))
    for n in (2, 3):
        assert numbers(farm, problem(n)) == list(range(30))


@pytest.mark.full
def test_a_cancelled_job_is_ended_in_the_middle_of_a_trial_that_hangs(farm):
    job = farm.ask(problem(4), seed=HANGING)
    wait_until(lambda: farm.job(job)["trials"]["timed"] == 1)
    (run,) = farm.runs()
    farm.client.delete(f"/v1/jobs/{job}")
    wait_until(lambda: has_ended(run))
    assert farm.job(job)["state"] == "cancelled"


@pytest.mark.full
def test_a_worker_makes_a_plan(farm):
    """Its jobs by the tests' search, the plan itself as users have it."""
    asked = farm.client.post(
        f"/v1/plans?trials=2&seed={STEADY}&layouts=model",
        content=MODULE,
        headers={"content-type": "text/x-mlir"},
    )
    links = asked.json()["links"]

    def look():
        return farm.client.get(links["self"]).json()

    wait_until(lambda: look()["state"] in ("done", "failed"), 120)
    plan = look()
    assert plan["state"] == "done", plan["error"]
    computed = [node["problem"] for node in plan["plan"]["nodes"] if node["problem"]]
    assert computed == [one["problem"] for one in plan["problems"] for _ in range(one["count"])]
    assert farm.client.get(links["script"]).status_code == 200, plan["script_error"]


@pytest.mark.full
def test_no_death_costs_a_finished_trial_or_has_one_timed_twice(farm):
    """The short form of `make chaos`: each process once, while two jobs run."""
    kills = [(name, signal.SIGKILL) for name in
             ("worker-1", "scheduler", "driver", "service", "runner")]  # fmt: skip
    faults = [*kills, ("worker-2", signal.SIGSTOP), ("service", signal.SIGSTOP)]
    if farm.database is not None:
        faults += [(chaos.DATABASE, signal.SIGKILL), (chaos.DATABASE, signal.SIGSTOP)]
    plan = Plan(faults, jobs=2, trials=80, freeze_s=1.0, pauses_s=(0.4, 0.8))
    report = chaos.run(farm, plan, random.Random(7))
    assert report.is_whole, report
    farm.wait_for_workers(2)


@pytest.mark.full
def test_nobody_joins_without_a_certificate(farm, monkeypatch):
    """The farm speaks TLS, by Dask's own configuration; this process has none of it."""
    monkeypatch.setattr("tilewise.service.cluster.connection.CONNECT_S", 1.0)
    for address in (farm.scheduler, farm.scheduler.replace("tls:", "tcp:")):
        with pytest.raises(UnreachableError, match=re.escape(address)):
            DaskCluster(address, farm.service).workers()


def test_a_real_search_runs_on_a_worker(farm):
    job = farm.ask("matmul:m=32,n=32,k=32,dtype=f32", seed=REAL, trials=2)
    wait_until(lambda: is_done(farm, job), 120)
    found = farm.job(job)
    assert found["best"]["gflops"] > 0 and sum(
        found["trials"][state] for state in ("timed", "pruned", "failed")) == 2  # fmt: skip


def joined(farm):
    """What workers have said of the addresses under which they joined the scheduler."""
    said = "".join(farm.folder.joinpath(f"{name}.log").read_text() for name in WORKERS)
    return [
        line for line in said.splitlines() if "tilewise.service.cluster.worker: worker " in line
    ]


@pytest.mark.full
def test_candidates_that_misbehave_cost_a_trial_each_and_the_worker_stays(farm):
    """The run stays too: one search tries them all, in children of its own."""
    before, processes = joined(farm), [farm.processes[name].pid for name in WORKERS]
    job = farm.ask("matmul:m=24,n=40,k=16,dtype=f32", seed=INJECTED, trials=len(faults.ROWS))
    wait_until(lambda: is_done(farm, job), 200)
    trials = farm.client.get(f"/v1/jobs/{job}/trials").json()["trials"]
    assert [trial["failure"] for trial in trials] == [None, *faults.CLASSES.values(), None]
    noted = [line.split()[1:] for line in farm.noted() if line.startswith("injected ")]
    ((_, _, worker),) = [line for line in noted if line[0] == "run"]
    assert int(worker) in processes
    begun = [int(rows) for event, rows, _ in noted if event == "began"]
    assert list(dict.fromkeys(begun)) == list(faults.ROWS)
    assert all(farm.processes[name].poll() is None for name in WORKERS)
    assert joined(farm) == before and len(before) >= 2


@pytest.mark.full
def test_no_trial_runs_on_a_machine_that_does_not_serve_its_target(farm):
    mixed_targets.add_workers(farm, ["mixed-1"])
    farm.wait_for_workers(len(WORKERS) + len(mixed_targets.MACHINES))
    asked = mixed_targets.run(farm, 12, 4, random.Random(3), first=200)
    trials = mixed_targets.tried(farm, asked)
    assert len(trials) == 12 * 4 and mixed_targets.wrong(trials) == 0
    assert len({target for target, _ in trials}) > 4 and len({machine for _, machine in trials}) > 3
    farm.send("mixed-1", signal.SIGKILL)
    del farm.processes["mixed-1"]
    farm.wait_for_workers(len(WORKERS))


@pytest.mark.full
def test_one_seed_tries_the_same_wherever_a_job_runs_and_is_kept(
    farm, url, migrated_postgresql, machine
):
    """No search for a convolution came before in any of these stores, so nothing is transferred."""
    found = kept.in_memory(machine)
    assert [trial.number for trial in found] == list(range(kept.TRIALS))
    assert len({trial.schedule.hash for trial in found}) == kept.TRIALS
    assert kept.in_database(url, machine) == found
    assert kept.in_database(migrated_postgresql(), machine) == found
    job = farm.ask(kept.PROBLEM, seed=SIMULATED, trials=kept.TRIALS)
    wait_until(lambda: is_done(farm, job), 200)
    assert kept.of_job(farm.url, job) == found


@pytest.fixture(scope="module")
def four(farm):
    """The farm with two more workers, which stay to its end."""
    for name in ("worker-3", "worker-4"):
        farm.start(name)
    farm.wait_for_workers(4)
    return farm


def timed(farm, name):
    """Which schedules were timed for a problem, each with the process that has timed it."""
    return [line.split()[1:] for line in farm.noted() if line.startswith(f"{name} ")]


def helping(farm):
    return [run for run in farm.runs() if "--helps" in arguments(run)]


def leading(farm):
    return [run for run in farm.runs() if "--helps" not in arguments(run)]


MANY = 200
"""Trials that outlast the start of every helper, on a busy machine too."""


@pytest.mark.full
def test_one_job_is_spread_over_three_of_four_workers_and_times_nothing_twice(four):
    name = problem(50)
    job = four.ask(name, seed=SPREAD, trials=MANY, spread=3, sampler="random")
    wait_until(lambda: len(helping(four)) == 2)
    most = 0

    def is_over():
        nonlocal most
        most = max(most, len(four.runs()))
        return is_done(four, job)

    wait_until(is_over)
    tried = timed(four, name)
    assert len(tried) == len({schedule for schedule, _ in tried}) == MANY
    assert len({process for _, process in tried}) == 3 and most == 3
    assert sum(four.job(job)["trials"][state] for state in ("timed", "pruned", "failed")) == MANY
    wait_until(lambda: not four.runs())


@pytest.mark.full
def test_a_spread_job_outlives_its_helpers_and_its_leader(four):
    """One helper is killed, another frozen for longer than its candidate may be late."""
    name = problem(51)
    job = four.ask(name, seed=SPREAD, trials=100, spread=3, sampler="random")
    wait_until(lambda: len({process for _, process in timed(four, name)}) == 3)
    killed, frozen = helping(four)
    frozen.send_signal(signal.SIGSTOP)
    killed.kill()
    before = len(timed(four, name))
    wait_until(lambda: len(timed(four, name)) > before + 5)
    (leader,) = leading(four)
    leader.kill()
    wait_until(lambda: is_done(four, job), 120)
    trials = kept.of_job(four.url, job)
    assert [trial.number for trial in trials] == list(range(100))
    assert len({trial.schedule.hash for trial in trials}) == 100
    wait_until(lambda: not four.runs())


@pytest.mark.full
def test_a_cancelled_job_ends_on_all_its_workers(four):
    job = four.ask(problem(52), seed=SPREAD, trials=2000, spread=3, sampler="random")
    wait_until(lambda: len(helping(four)) == 2)
    four.client.delete(f"/v1/jobs/{job}")
    wait_until(lambda: not four.runs(), 20)
    assert four.job(job)["state"] == "cancelled" and four.job(job)["helpers"] == 0
