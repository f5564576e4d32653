import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from sqlalchemy import update

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.search.progress import SearchPhase
from tilewise.service.db import base, make_engine, models, reading, writing
from tilewise.service.db import session as session_module
from tilewise.service.db.session import make_sessions
from tilewise.service.errors import LeaseLostError
from tilewise.service.host.process_identity import is_dead, me
from tilewise.service.jobs import claims, lease, queue
from tilewise.service.jobs.events import note_phase
from tilewise.service.jobs.lease import LEASE
from tilewise.service.jobs.trial_store import SqlTrialStore

ELSEWHERE = "another-host:1:1"


@pytest.fixture
def claim(sessions, machine):
    def make(owner, **options):
        with writing(sessions) as session:
            return claims.claim(session, owner, machine.targets, TOOLCHAIN, **options)

    return make


def number(held):
    return None if held is None else held.job_id


def row(sessions, job_id):
    with reading(sessions) as session:
        return queue.get(session, job_id)


def age(sessions, job_id, by):
    with writing(sessions) as session:
        moment = queue.get(session, job_id).heartbeat_at - by
        session.execute(update(models.Job).values(heartbeat_at=moment, claimed_at=moment))


def test_a_run_that_lost_its_lease_does_not_change_the_phase(claim, submit, sessions):
    job_id = submit()
    lost = claim(ELSEWHERE)
    age(sessions, job_id, 2 * LEASE)
    held = claim(me())
    note_phase(sessions, held, SearchPhase("proof", 1, 3))
    for epoch, owner in ((lost.epoch, lost.owner), (lost.epoch, held.owner)):
        note_phase(sessions, lease.Lease(job_id, owner, epoch), SearchPhase("search", 7, 9))
    found = row(sessions, job_id)
    assert (found.phase, found.phase_done, found.phase_total) == ("proof", 1, 3)


def test_a_run_that_lost_its_lease_stores_no_trial(claim, submit, sessions):
    job_id = submit()
    lost = claim(ELSEWHERE)
    age(sessions, job_id, 2 * LEASE)
    claim(me())
    store = SqlTrialStore(sessions, job_id, lost)
    with pytest.raises(LeaseLostError, match="taken over"):
        store.add(fakes.trial(0))
    assert store.trials() == []


def test_of_two_that_see_a_dead_process_one_takes_its_job(claim, submit, sessions, monkeypatch):
    job_id = submit()
    claim(ELSEWHERE)
    monkeypatch.setattr(lease, "is_dead", lambda owner: owner == ELSEWHERE)
    seen = row(sessions, job_id)
    with writing(sessions) as session:
        assert lease.claim_one(session, job_id, "a-third-host:1:1")
    with writing(sessions) as session:
        session.add(seen)
        assert lease.take(session, seen, me()) is None
    assert row(sessions, job_id).owner == "a-third-host:1:1"


def test_the_oldest_job_goes_first_and_to_one_owner(claim, submit, sessions):
    first, second = submit(), submit(PROBLEM + ",bias")
    taken = [claim(owner) for owner in (me(), ELSEWHERE, me())]
    assert [number(held) for held in taken] == [first, second, None]
    assert (row(sessions, first).owner, row(sessions, first).state) == (me(), "running")


def test_a_job_keeps_the_machine_of_its_last_run(claim, submit, sessions, machine):
    job_id = submit()
    assert row(sessions, job_id).host is None
    held = claim(ELSEWHERE)
    with writing(sessions) as session:
        lease.release(session, held)
    assert row(sessions, job_id).host == "another-host"
    held = claim(me())
    with writing(sessions) as session:
        lease.end(session, held, state="failed", error="x", complete=False)
    assert row(sessions, job_id).host == machine.host


def test_a_job_that_was_cancelled_after_it_was_read_is_not_claimed(sessions, submit):
    """As on a server, where two transactions can both have read a free job."""
    job_id = submit()
    seen = row(sessions, job_id)
    with writing(sessions) as session:
        queue.cancel(session, job_id)
    with writing(sessions) as session:
        session.add(seen)
        assert not lease.take(session, seen, me())
    assert row(sessions, job_id).owner is None


def test_a_host_whose_clock_is_ahead_takes_no_job_that_runs(url, submit, machine, monkeypatch):
    """Two services share a server, and the clock of the second one is an hour ahead."""
    if url.startswith("sqlite"):
        pytest.skip("a file has one host, and one clock")
    job_id, first = submit(), make_sessions(make_engine(url))
    with writing(first) as session:
        held = lease.claim_one(session, job_id, ELSEWHERE)

    class Ahead(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(hours=1)

    monkeypatch.setattr(base, "datetime", Ahead)
    monkeypatch.setattr(base, "SERVER_CLOCK", base.ServerClock())
    monkeypatch.setattr(session_module, "SERVER_CLOCK", base.SERVER_CLOCK)
    second = make_sessions(make_engine(url))
    with writing(second) as session:
        assert claims.claim(session, me(), machine.targets, TOOLCHAIN) is None
        assert lease.holds(session, held)


def test_only_jobs_that_this_machine_can_run_are_claimed(sessions, submit, machine):
    submit(toolchain="another")
    with writing(sessions) as session:
        assert claims.claim(session, me(), machine.targets, TOOLCHAIN) is None
        assert claims.claim(session, me(), ("cpu:neoverse-v2,threads=1",), "another") is None


def test_a_silent_owner_loses_the_job(claim, submit, sessions):
    job_id = submit()
    lost = claim(ELSEWHERE)
    age(sessions, job_id, LEASE / 2)
    assert claim(me()) is None
    age(sessions, job_id, LEASE)
    assert number(claim(me())) == job_id
    with pytest.raises(LeaseLostError), writing(sessions) as session:
        lease.beat(session, lost)


def test_after_an_outage_a_silent_owner_is_spared_and_a_dead_one_is_not(claim, submit, sessions):
    silent, dead, waiting = (submit(f"matmul:m={m},n=1,k=1,dtype=f32") for m in (1, 2, 3))
    host, pid, start = me().rsplit(":", 2)
    assert number(claim(ELSEWHERE)) == silent
    assert number(claim(f"{host}:{pid}:{int(start) - 1}")) == dead
    age(sessions, silent, 2 * LEASE)
    assert [number(claim(me(), spares_late=True)) for _ in range(3)] == [dead, waiting, None]
    assert number(claim(me(), but=(dead, waiting))) == silent


def test_each_claim_is_a_run_of_its_own_also_of_one_owner(claim, submit, sessions):
    """What froze for longer than its lease meets its own process as the next owner."""
    job_id = submit()
    former = claim(me())
    age(sessions, job_id, 2 * LEASE)
    present = claim(me())
    assert (former.epoch, present.epoch) == (1, 2)
    before = row(sessions, job_id)
    with writing(sessions) as session:
        with pytest.raises(LeaseLostError, match="taken over"):
            lease.beat(session, former)
        assert not lease.holds(session, former) and lease.holds(session, present)
        assert not lease.release(session, former)
        assert not lease.end(session, former, state="done", complete=True)
        lease.crash(session, former, "signal SIGKILL")
    after = row(sessions, job_id)
    assert (after.state, after.crashes, after.epoch) == ("running", 0, 2)
    assert (after.heartbeat_at, after.claimed_at) == (before.heartbeat_at, before.claimed_at)
    with writing(sessions) as session:
        assert lease.end(session, present, state="done", complete=True)


def test_a_heartbeat_keeps_the_job(claim, submit, sessions):
    job_id = submit()
    held = claim(ELSEWHERE)
    age(sessions, job_id, 2 * LEASE)
    with writing(sessions) as session:
        lease.beat(session, held)
    assert claim(me()) is None


def test_the_job_of_a_dead_process_is_free_at_once(claim, submit):
    code = "from tilewise.service.host.process_identity import me; print(me(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        owner = child.stdout.readline().strip()
        job_id = submit()
        assert number(claim(owner)) == job_id
        assert claim(me()) is None, "it lives"
        child.kill()
        while not is_dead(owner):  # a zombie until it is waited for, and dead all the same
            pass
        assert number(claim(me())) == job_id


def test_a_released_job_goes_back_to_the_queue(claim, submit, sessions):
    job_id = submit()
    held = claim(me())
    with writing(sessions) as session:
        assert not lease.release(session, replace(held, owner=ELSEWHERE))
        assert lease.release(session, held)
    assert (row(sessions, job_id).state, row(sessions, job_id).crashes) == ("queued", 0)


def test_a_job_fails_at_its_third_crash(claim, submit, sessions):
    job_id = submit()
    for left in ("queued", "queued", "failed"):
        held = claim(me())
        with writing(sessions) as session:
            lease.crash(session, held, "signal SIGSEGV")
        assert row(sessions, job_id).state == left
    assert row(sessions, job_id).error == "the worker died 3 times; the last time: signal SIGSEGV"


def test_a_crash_after_the_end_changes_nothing(sessions, tuned):
    with writing(sessions) as session:
        lease.crash(session, lease.Lease(tuned, me(), 1), "exit status 1")
    assert (row(sessions, tuned).state, row(sessions, tuned).crashes) == ("done", 0)


@pytest.fixture
def passes(monkeypatch):
    passed = [0.0]
    monotonic = time.monotonic
    monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=lambda: monotonic() + passed[0]))

    def wait(seconds):
        passed[0] += seconds

    return wait


def test_the_time_of_all_runs_is_counted(claim, submit, sessions, passes):
    job_id = submit()
    held = claim(ELSEWHERE)
    passes(100)
    with writing(sessions) as session:
        lease.beat(session, held)
    assert 100 <= row(sessions, job_id).elapsed_s < 110, "what a run shows is kept if it dies"
    with writing(sessions) as session:
        lease.release(session, held)
    claim(me())
    assert 100 <= row(sessions, job_id).elapsed_s < 110


def finish(sessions, job_id, how, held):
    with writing(sessions) as session:
        match how:
            case "cancelled":
                queue.cancel(session, job_id)
            case "failed":
                lease.end(session, held, state="failed", error="no", complete=False)
            case "damaged":
                session.execute(update(models.Job).values(seed="two"))
                assert lease.fail_damaged(session, session.get_one(models.Job, job_id))


@pytest.mark.parametrize("how", ["cancelled", "failed", "damaged"])
def test_a_job_that_ends_early_counts_its_runs_and_is_not_complete(
    claim, submit, sessions, how, passes
):
    if how == "damaged" and sessions.kw["bind"].dialect.name != "sqlite":
        pytest.skip("columns of SQLite alone take values of another type")
    job_id = submit()
    first = claim(me())
    passes(100)
    with writing(sessions) as session:
        lease.beat(session, first)
        lease.release(session, first)
    second = claim(me())
    passes(50)
    with writing(sessions) as session:
        lease.beat(session, second)
    finish(sessions, job_id, how, second)
    with reading(sessions) as session:
        job = session.get_one(models.Job, job_id)
    assert 150 <= job.elapsed_s < 170 and job.claimed_at is None
    assert job.complete is False and job.finished_at is not None
    assert lease.elapsed_s(job) == job.elapsed_s


def test_time_after_the_last_sign_of_an_owner_is_not_counted(claim, submit, sessions):
    """Nobody ran the job in it."""
    job_id = submit()
    claim(ELSEWHERE)
    with writing(sessions) as session:
        job = queue.get(session, job_id)
        job.elapsed_s = 3600.0
        job.claimed_at = job.heartbeat_at = job.heartbeat_at - timedelta(hours=1)
    finish(sessions, job_id, "cancelled", None)
    assert row(sessions, job_id).elapsed_s == 3600


def test_jobs_of_a_former_toolchain_are_retired(sessions, submit, machine):
    old, new = submit(toolchain="former"), submit()
    with writing(sessions) as session:
        assert claims.retire(session, machine.targets, TOOLCHAIN) == 1
    assert (row(sessions, old).state, row(sessions, old).complete) == ("failed", False)
    assert (
        "toolchain former is no longer installed here; request it again" in row(sessions, old).error
    )
    assert row(sessions, new).state == "queued"


def test_a_job_of_a_former_toolchain_that_somebody_runs_is_not_retired(sessions, submit, machine):
    old = submit(toolchain="former")
    with writing(sessions) as session:
        assert lease.claim_one(session, old, me())
    with writing(sessions) as session:
        assert claims.retire(session, machine.targets, TOOLCHAIN) == 0
    assert row(sessions, old).state == "running"
