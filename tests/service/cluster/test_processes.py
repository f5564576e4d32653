import random
import re
import signal

import pytest

from tests.service.api.plans.test_http_plans import MODULE
from tests.service.archive.stores import opened_store
from tests.service.cluster import certificates, chaos
from tests.service.cluster.chaos import Plan
from tests.service.cluster.farm import Farm, arguments, is_alive
from tests.service.cluster.tuners import HANGING, SPREAD, STEADY
from tests.service.conftest import PROBLEM
from tests.service.processes import wait_until
from tilewise.kernels.problem import parse_problem
from tilewise.service.cluster.connection import Cluster
from tilewise.service.errors import UnreachableError
from tilewise.service.jobs.trial_store import SqlTrialStore

WORKERS = ("worker-1", "worker-2")
NAMES = ("scheduler", *WORKERS, "service", "driver")


@pytest.fixture(scope="module")
def server(new_postgresql_folder):
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
    options = certificates.variables(certificates.configured(folder))
    made = Farm(folder, NAMES, server, uses_tls=True, **options)
    try:
        made.wait_for_workers(2)
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def logs(farm, request):
    before = request.session.testsfailed
    yield
    if request.session.testsfailed > before:
        print(farm.told())


def is_done(farm, job_id):
    job = farm.job(job_id)
    assert job["state"] != "failed", job["error"]
    return job["state"] == "done"


def problem(number):
    return parse_problem(f"{PROBLEM},batch={number}").canonical


@pytest.mark.full
def test_a_cancelled_job_is_ended_in_the_middle_of_a_trial_that_hangs(farm):
    job = farm.ask(problem(4), seed=HANGING)
    wait_until(lambda: farm.job(job)["trials"]["timed"] == 1)
    (run,) = farm.runs()
    farm.client.delete(f"/v1/jobs/{job}")
    wait_until(lambda: not is_alive(run))
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
            Cluster(address, farm.service).workers()


@pytest.fixture(scope="module")
def four(farm):
    for name in ("worker-3", "worker-4"):
        farm.start(name)
    farm.wait_for_workers(4)
    return farm


def timed(farm, name):
    return [line.split()[1:] for line in farm.noted() if line.startswith(f"{name} ")]


def runs(farm, is_helper):
    return [run for run in farm.runs() if ("--helps" in arguments(run)) == is_helper]


@pytest.mark.full
def test_a_job_is_spread_over_three_of_four_workers_and_outlives_them(four):
    """One helper is killed, another frozen for longer than its candidate may be late."""
    name = problem(51)
    job = four.ask(name, seed=SPREAD, trials=100, spread=3, sampler="random")
    wait_until(lambda: len({process for _, process in timed(four, name)}) == 3)
    tried = [schedule for schedule, _ in timed(four, name)]
    assert len(set(tried)) == len(tried) and len(four.runs()) == 3
    killed, frozen = runs(four, is_helper=True)
    frozen.send_signal(signal.SIGSTOP)
    killed.kill()
    before = len(timed(four, name))
    wait_until(lambda: len(timed(four, name)) > before + 5)
    (leader,) = runs(four, is_helper=False)
    leader.kill()
    wait_until(lambda: is_done(four, job), 120)
    with opened_store(four.url) as sessions:
        trials = SqlTrialStore(sessions, job).trials()
    assert [trial.number for trial in trials] == list(range(100))
    assert len({trial.schedule.hash for trial in trials}) == 100
    assert sum(four.job(job)["trials"][state] for state in ("timed", "pruned", "failed")) == 100
    wait_until(lambda: not four.runs())


@pytest.mark.full
def test_a_cancelled_job_ends_on_all_its_workers(four):
    job = four.ask(problem(52), seed=SPREAD, trials=2000, spread=3, sampler="random")
    wait_until(lambda: len(runs(four, is_helper=True)) == 2)
    four.client.delete(f"/v1/jobs/{job}")
    wait_until(lambda: not four.runs(), 20)
    assert four.job(job)["state"] == "cancelled" and four.job(job)["helpers"] == 0
