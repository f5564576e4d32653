"""The embedded workers: children that crash, hang, and are called off."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from service import jobs, lease
from service.db import reading, writing
from service.db.trials import SqlTrialStore
from service.pool import Pool, Work
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.processes import wait_until


@pytest.fixture
def start(sessions, url, machine):
    """Starts a pool with a fake search; stops it after the test."""
    started = []

    def make(tuner, workers=1):
        arguments = (f"--tuner=tests.service.fakes:{tuner}", "--prover=tests.service.fakes:prove")
        work = Work(machine.targets, TOOLCHAIN, workers, arguments)
        started.append(Pool(sessions, url, work, poll_s=0.05))
        started[-1].start()
        return started[-1]

    yield make
    for pool in started:
        pool.stop()


@pytest.fixture
def job(sessions):
    def read(job_id):
        with reading(sessions) as session:
            return jobs.get(session, job_id)

    return read


def pids(pool):
    return [child.pid for child in pool._children.values()]


def test_a_worker_runs_the_job_in_a_process_of_its_own(start, submit, job):
    job_id = submit()
    start("tune")
    wait_until(lambda: job(job_id).state == "done")


def test_a_job_that_kills_its_worker_fails_after_three(start, submit, job):
    job_id = submit()
    start("crashing_tune")
    wait_until(lambda: job(job_id).state == "failed")
    assert job(job_id).crashes == 3
    assert job(job_id).error == "the worker died 3 times; the last time: signal SIGABRT"


def test_a_cancelled_job_is_ended_even_when_it_hangs(start, submit, job, sessions):
    job_id = submit()
    pool = start("hanging_tune")
    wait_until(lambda: len(SqlTrialStore(sessions, job_id).trials()) == 1)
    (pid,) = pids(pool)
    with writing(sessions) as session:
        jobs.cancel(session, job_id)
    pool.wake()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert job(job_id).state == "cancelled"
    assert len(SqlTrialStore(sessions, job_id).trials()) == 1


def test_a_pool_that_stops_ends_its_children_and_requeues(start, submit, job, sessions):
    job_id = submit()
    pool = start("hanging_tune")
    wait_until(lambda: len(SqlTrialStore(sessions, job_id).trials()) == 1)
    (pid,) = pids(pool)
    pool.stop()
    assert not Path(f"/proc/{pid}").exists()
    assert (job(job_id).state, job(job_id).crashes) == ("queued", 0)


def test_what_a_worker_left_behind_is_ended_with_it(start, submit, sessions):
    job_id = submit()
    pool = start("spawning_tune")
    wait_until(lambda: len(SqlTrialStore(sessions, job_id).trials()) == 1)
    left = SqlTrialStore(sessions, job_id).trials()[0].params["pid"]
    assert psutil.pid_exists(left)
    pool.stop()
    wait_until(lambda: not psutil.pid_exists(left) or is_zombie(left))


def is_zombie(pid):
    return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_worker_that_cannot_be_started_is_tried_again(start, submit, job, monkeypatch):
    job_id, failures = submit(), []
    spawn = Pool._spawn

    def fail_once(pool, held):
        if not failures:
            failures.append(held.job_id)
            raise OSError("no memory")
        return spawn(pool, held)

    monkeypatch.setattr(Pool, "_spawn", fail_once)
    start("tune")
    wait_until(lambda: job(job_id).state == "done")
    assert failures == [job_id] and job(job_id).crashes == 0


def test_no_more_children_than_workers(start, submit, job):
    first, second, third = (submit(f"{PROBLEM},batch={n}") for n in (2, 3, 4))
    pool = start("hanging_tune", workers=2)
    wait_until(lambda: len(pids(pool)) == 2)
    states = [job(job_id).state for job_id in (first, second, third)]
    assert states == ["running", "running", "queued"]


def freeze(sessions, pid, job_id):
    """Stop a job's process, and let it have been silent for longer than the lease."""
    with writing(sessions) as session:  # so it does not stop with the write lock in its hands
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        jobs.get(session, job_id).heartbeat_at -= 2 * lease.LEASE


def numbers(sessions, job_id):
    return [trial.number for trial in SqlTrialStore(sessions, job_id).trials()]


def test_a_pool_does_not_take_the_job_of_its_own_frozen_child(start, submit, job, sessions):
    first = submit(trials=20)
    pool = start("slow_tune", workers=2)
    wait_until(lambda: numbers(sessions, first))
    (pid,) = pids(pool)
    freeze(sessions, pid, first)
    second = submit(PROBLEM + ",bias", trials=1)
    wait_until(lambda: job(second).state == "done")
    wait_until(lambda: pids(pool) == [pid])
    assert (job(first).state, job(first).epoch) == ("running", 1)

    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: job(first).state == "done")
    assert (job(first).epoch, job(first).crashes) == (1, 0)
    assert numbers(sessions, first) == list(range(20))


def test_a_frozen_child_whose_job_went_elsewhere_writes_nothing_more_and_ends(
    start, submit, job, sessions, machine
):
    job_id = submit(trials=1000)
    pool = start("slow_tune")
    wait_until(lambda: numbers(sessions, job_id))
    (pid,) = pids(pool)
    freeze(sessions, pid, job_id)
    with writing(sessions) as session:
        taken = lease.claim(session, "another-host:1:1", machine.targets, TOOLCHAIN)
    before = numbers(sessions, job_id)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert numbers(sessions, job_id) == before
    assert (job(job_id).owner, job(job_id).epoch) == (taken.owner, taken.epoch) == (taken.owner, 2)
    assert job(job_id).state == "running"


def test_the_database_url_is_not_on_the_command_line(start, submit, job):
    submit()
    pool = start("hanging_tune")
    wait_until(lambda: len(pids(pool)) == 1)
    assert "sqlite" not in Path(f"/proc/{pids(pool)[0]}/cmdline").read_text()
