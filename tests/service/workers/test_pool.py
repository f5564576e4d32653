import os
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text

from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.processes import wait_until
from tilewise.service.db import make_engine, models, reading, writing
from tilewise.service.errors import DatabaseError, OutageError
from tilewise.service.jobs import claims, lease, queue
from tilewise.service.jobs.lease import LEASE
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.workers.completion import reason_of
from tilewise.service.workers.pool import Pool, PoolWork


@pytest.fixture
def start(sessions, url, machine):
    """Starts a pool with a fake search; stops it after the test."""
    started = []

    def make(tuner, workers=1):
        arguments = (f"--tuner=tests.service.fakes:{tuner}", "--prover=tests.service.fakes:prove")
        work = PoolWork(machine.targets, TOOLCHAIN, workers, arguments)
        started.append(Pool(sessions, url, work, poll_s=0.05))
        started[-1].start()
        return started[-1]

    yield make
    for pool in started:
        pool.stop()


def pids(pool):
    return [child.pid for child in pool._children.values()]


def test_a_worker_runs_the_job_in_a_process_of_its_own(start, submit, job):
    job_id = submit()
    start("tune")
    wait_until(lambda: job(job_id).state == "done")


@pytest.mark.full
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
        queue.cancel(session, job_id)
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


@pytest.mark.full
def test_what_a_worker_left_behind_is_ended_with_it(start, submit, sessions):
    job_id = submit()
    pool = start("spawning_tune")
    wait_until(lambda: len(SqlTrialStore(sessions, job_id).trials()) == 1)
    left = SqlTrialStore(sessions, job_id).trials()[0].params["pid"]
    assert psutil.pid_exists(left)
    pool.stop()
    wait_until(lambda: has_ended(left))


def has_ended(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.full
def test_a_worker_that_cannot_be_started_is_tried_again(start, submit, job, monkeypatch):
    job_id, failures = submit(), []
    spawn = Pool._spawn

    def fail_once(pool, held, claimed):
        if not failures:
            failures.append(held.job_id)
            raise OSError("no memory")
        return spawn(pool, held, claimed)

    monkeypatch.setattr(Pool, "_spawn", fail_once)
    start("tune")
    wait_until(lambda: job(job_id).state == "done")
    assert failures == [job_id] and job(job_id).crashes == 0


@pytest.mark.full
def test_no_more_children_than_workers(start, submit, job):
    first, second, third = (submit(f"{PROBLEM},batch={n}") for n in (2, 3, 4))
    pool = start("hanging_tune", workers=2)
    wait_until(lambda: len(pids(pool)) == 2)
    states = [job(job_id).state for job_id in (first, second, third)]
    assert states == ["running", "running", "queued"]


def freeze(sessions, pid, job_id):
    with writing(sessions) as session:  # so it does not stop with the write lock in its hands
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        queue.get(session, job_id).heartbeat_at -= 2 * LEASE


def numbers(sessions, job_id):
    return [trial.number for trial in SqlTrialStore(sessions, job_id).trials()]


@pytest.mark.full
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


@pytest.mark.full
def test_a_frozen_child_whose_job_went_elsewhere_writes_nothing_more_and_ends(
    start, submit, job, sessions, machine
):
    job_id = submit(trials=1000)
    pool = start("slow_tune")
    wait_until(lambda: numbers(sessions, job_id))
    (pid,) = pids(pool)
    freeze(sessions, pid, job_id)
    with writing(sessions) as session:
        taken = claims.claim(session, "another-host:1:1", machine.targets, TOOLCHAIN)
    before = numbers(sessions, job_id)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert numbers(sessions, job_id) == before
    assert (job(job_id).owner, job(job_id).epoch) == (taken.owner, taken.epoch) == (taken.owner, 2)
    assert job(job_id).state == "running"


@pytest.mark.full
def test_damaged_rows_cost_themselves_alone(start, submit, job, sessions, url):
    target, time, owner, problem, good = (submit(f"{PROBLEM},batch={n}") for n in range(2, 7))
    with make_engine(url).begin() as connection:
        for statement in (
            f"UPDATE jobs SET target = 'cpu' WHERE id = {target}",
            f"UPDATE jobs SET created_at = 'lately' WHERE id = {time}",
            "UPDATE jobs SET state = 'running', owner = 'nobody', "
            f"heartbeat_at = '2020-01-01 00:00:00' WHERE id = {owner}",
            f"UPDATE problems SET canonical = 'gemm:x' WHERE id = {problem}",
        ):
            connection.execute(text(statement))
    pool = start("tune")
    wait_until(lambda: job(good).state == "done")
    assert job(owner).state == "done"
    assert (job(problem).state, job(problem).crashes) == ("failed", 0)
    assert "the canonical string of its problem does not have" in job(problem).error
    assert job(target).state == "queued", "no machine is so"
    with reading(sessions) as session:
        failed = session.get_one(models.Job, time)
        assert failed.state == "failed" and "created_at is 'lately'" in failed.error
    assert pool.is_alive


@pytest.mark.full
def test_what_nobody_foresaw_is_told_once_and_the_other_jobs_run(
    start, submit, job, monkeypatch, caplog
):
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


@pytest.mark.full
def test_a_child_that_cannot_be_looked_after_leaves_the_others_alone(
    start, submit, job, sessions, monkeypatch, caplog
):
    first, second = submit(), submit(PROBLEM + ",bias")
    pool = start("hanging_tune", workers=2)
    wait_until(lambda: len(pids(pool)) == 2)
    holds = lease.holds

    def fail(session, held):
        if held.job_id == first:
            raise RuntimeError("a cosmic ray")
        return holds(session, held)

    monkeypatch.setattr(lease, "holds", fail)
    wait_until(lambda: "cosmic ray" in caplog.text)
    with writing(sessions) as session:
        queue.cancel(session, second)
    wait_until(lambda: len(pids(pool)) == 1)
    assert (job(first).state, job(second).state) == ("running", "cancelled")


def test_jobs_of_another_toolchain_are_retired_when_the_pool_starts(start, submit, job):
    old, new = submit(toolchain="former"), submit()
    start("tune")
    wait_until(lambda: job(new).state == "done")
    assert (job(old).state, job(old).complete) == ("failed", False)
    assert "toolchain former, which changed" in job(old).error


@pytest.mark.full
def test_a_busy_database_at_the_start_does_not_spare_them(start, submit, job, monkeypatch):
    old, calls = submit(toolchain="former"), []
    retire = claims.retire

    def busy_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise DatabaseError("the database is locked")
        return retire(*arguments)

    monkeypatch.setattr(claims, "retire", busy_once)
    start("tune")
    wait_until(lambda: job(old).state == "failed")
    assert len(calls) == 2


@pytest.mark.full
def test_jobs_start_though_others_cannot_be_retired(start, submit, job, monkeypatch, caplog):
    def fail(*_arguments):
        raise RuntimeError("a cosmic ray")

    monkeypatch.setattr(claims, "retire", fail)
    job_id = submit()
    start("tune")
    wait_until(lambda: job(job_id).state == "done")
    assert caplog.text.count("jobs of other toolchains: a cosmic ray") == 1


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


@pytest.mark.full
def test_what_is_wrong_with_a_plan_keeps_no_other_job(
    start, plan, submit, job, monkeypatch, caplog
):
    def refuse(*_arguments):
        raise RuntimeError("a cosmic ray")

    monkeypatch.setattr(claims, "is_tuned", refuse)
    plan(), submit()
    start("tune")
    wait_until(lambda: job(1).state == "done")
    assert caplog.text.count("job 2: it cannot be claimed: RuntimeError('a cosmic ray')") == 1


@pytest.mark.full
def test_a_worker_that_has_lost_its_database_has_not_crashed(start, submit, job):
    job_id = submit()
    start("homeless_tune")
    wait_until(lambda: job(job_id).epoch >= 2)
    assert (job(job_id).state in ("queued", "running"), job(job_id).crashes) == (True, 0)


def test_calling_a_job_off_wakes_the_pool(submit, job, sessions, url, machine, client):
    """Between two polls, which are an hour apart here."""
    submit()
    arguments = ("--tuner=tests.service.fakes:hanging_tune",)
    work = PoolWork(machine.targets, TOOLCHAIN, 1, arguments)
    pool = Pool(sessions, url, work, poll_s=3600)
    client.app.state.services = replace(client.app.state.services, pool=pool)
    pool.start()
    try:
        wait_until(lambda: numbers(sessions, 1))
        (pid,) = pids(pool)
        assert client.delete("/v1/jobs/1").json()["state"] == "cancelled"
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
    finally:
        pool.stop()


def test_a_signal_without_a_name_is_told_by_its_number():
    assert reason_of(-signal.SIGSEGV) == "signal SIGSEGV"
    assert reason_of(-(signal.SIGRTMIN + 3)) == f"signal {signal.SIGRTMIN + 3}"
    assert reason_of(7) == "exit status 7; its log says more"


@pytest.mark.full
def test_the_database_url_is_not_on_the_command_line(start, submit, job):
    submit()
    pool = start("hanging_tune")
    wait_until(lambda: len(pids(pool)) == 1)
    assert "sqlite" not in Path(f"/proc/{pids(pool)[0]}/cmdline").read_text()
