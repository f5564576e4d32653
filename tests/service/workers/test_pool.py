from dataclasses import replace

import psutil
import pytest

from tests.service.cluster.farm import is_alive
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.processes import wait_until
from tilewise.service.db import writing
from tilewise.service.errors import OutageError
from tilewise.service.jobs import claims, lease, queue
from tilewise.service.jobs.lease import LEASE
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.workers.pool import Pool, PoolWork


@pytest.fixture
def start(sessions, url, machine):
    """Starts a pool with a fake search; stops it after the test."""
    started = []

    def make(tuner, workers=1, poll_s=0.05):
        arguments = (f"--tuner=tests.service.fakes:{tuner}", "--prover=tests.service.fakes:prove")
        work = PoolWork(machine.targets, TOOLCHAIN, workers, arguments)
        started.append(Pool(sessions, url, work, poll_s=poll_s))
        started[-1].start()
        return started[-1]

    yield make
    for pool in started:
        pool.stop()


def numbers(sessions, job_id):
    return [trial.number for trial in SqlTrialStore(sessions, job_id).trials()]


@pytest.fixture
def begun(start, submit, sessions):
    """Starts a pool with a job that has a trial; the job, the pool, and its worker's process."""

    def make(tuner, **options):
        job_id, pool = submit(trials=1000), start(tuner, **options)
        wait_until(lambda: numbers(sessions, job_id))
        (child,) = pool._children.values()
        return job_id, pool, psutil.Process(child.pid)

    return make


@pytest.mark.full
def test_a_job_that_kills_its_worker_fails_after_three(start, submit, job):
    job_id = submit()
    start("crashing_tune")
    wait_until(lambda: job(job_id).state == "failed")
    assert job(job_id).crashes == 3
    assert job(job_id).error == "the worker died 3 times; the last time: signal SIGABRT"


def test_a_pool_that_stops_ends_its_children_and_requeues(begun, job):
    job_id, pool, process = begun("hanging_tune")
    assert "sqlite" not in " ".join(process.cmdline()), "the URL may have a password"
    pool.stop()
    assert not process.is_running()
    assert (job(job_id).state, job(job_id).crashes) == ("queued", 0)


@pytest.mark.full
def test_what_a_worker_left_behind_is_ended_with_it(begun, sessions):
    job_id, pool, _ = begun("spawning_tune")
    left = psutil.Process(SqlTrialStore(sessions, job_id).trials()[0].params["pid"])
    pool.stop()
    wait_until(lambda: not is_alive(left))


@pytest.mark.full
def test_no_more_children_than_workers(start, submit, job):
    jobs = [submit(f"{PROBLEM},batch={n}") for n in (2, 3, 4)]
    pool = start("hanging_tune", workers=2)
    wait_until(lambda: len(pool._children) == 2)
    assert [job(one).state for one in jobs] == ["running", "running", "queued"]


@pytest.mark.full
def test_a_frozen_child_whose_job_was_taken_over_ends(begun, job, sessions, machine):
    job_id, _, child = begun("slow_tune")
    with writing(sessions) as session:  # so it does not stop with the write lock in its hands
        child.suspend()
        wait_until(lambda: child.status() == psutil.STATUS_STOPPED)
        queue.get(session, job_id).heartbeat_at -= 2 * LEASE
    with writing(sessions) as session:
        taken = claims.claim(session, "another-host:1:1", machine.targets, TOOLCHAIN)
    before = numbers(sessions, job_id)
    child.resume()
    wait_until(lambda: not child.is_running())
    assert numbers(sessions, job_id) == before
    found = job(job_id)
    assert (found.state, found.owner, found.epoch) == ("running", taken.owner, 2)


@pytest.mark.full
def test_an_unforeseen_error_stops_no_other_job(start, submit, job, monkeypatch, caplog):
    bad, good = submit(), submit(PROBLEM + ",bias")
    take, tries = lease.take, []

    def fail(session, row, *owner):
        if row.id == bad:
            tries.append(row.id)
            raise RuntimeError("a cosmic ray")
        return take(session, row, *owner)

    monkeypatch.setattr(claims, "take", fail)
    pool = start("tune")
    wait_until(lambda: job(good).state == "done")
    wait_until(lambda: len(tries) > 5)
    (told,) = [r.getMessage() for r in caplog.records if "cosmic ray" in r.getMessage()]
    assert told.startswith(f"job {bad}: ")
    monkeypatch.undo()
    wait_until(lambda: job(bad).state == "done")
    assert pool.is_alive


def test_jobs_of_another_toolchain_are_retired_when_the_pool_starts(start, submit, job):
    old, new = submit(toolchain="former"), submit()
    start("tune")
    wait_until(lambda: job(new).state == "done")
    assert (job(old).state, job(old).complete) == ("failed", False)
    assert "toolchain former is no longer installed here" in job(old).error


@pytest.mark.full
def test_a_pool_that_saw_an_outage_spares_the_silent_for_a_while(start, submit, job, monkeypatch):
    given, claim = [], claims.claim

    def away_once(session, *arguments, **options):
        given.append(options["spares_late"])
        if len(given) == 2:
            raise OutageError("the database is away")
        return claim(session, *arguments, **options)

    monkeypatch.setattr(claims, "claim", away_once)
    start("tune")
    wait_until(lambda: len(given) >= 4)
    job_id = submit()
    wait_until(lambda: job(job_id).state == "done")
    assert given[:4] == [False, False, True, True]


def test_a_cancelled_job_is_ended_at_once_even_when_it_hangs(begun, sessions, client):
    job_id, pool, child = begun("hanging_tune", poll_s=3600)
    client.app.state.services = replace(client.app.state.services, pool=pool)
    assert client.delete(f"/v1/jobs/{job_id}").json()["state"] == "cancelled"
    wait_until(lambda: not child.is_running())
    assert numbers(sessions, job_id) == [0]
