import logging
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.processes import wait_until
from tilewise.search.progress import SearchPhase
from tilewise.service.db import base, make_engine, make_sessions, models, writing
from tilewise.service.db import session as session_module
from tilewise.service.errors import LeaseLostError
from tilewise.service.host.process_identity import Owner, is_dead, me
from tilewise.service.jobs import claims, lease, queue, registry
from tilewise.service.jobs.events import note_phase
from tilewise.service.jobs.heartbeat import Heartbeat
from tilewise.service.jobs.lease import LEASE
from tilewise.service.jobs.registry import WorkerEntry
from tilewise.service.jobs.trial_store import SqlTrialStore

ELSEWHERE = "another-host:1:1"


@pytest.fixture
def do(sessions):
    """Calls a function in a transaction of its own."""

    def call(function, *given, **options):
        with writing(sessions) as session:
            return function(session, *given, **options)

    return call


@pytest.fixture
def claim(do, machine):
    def make(owner, **options):
        return do(claims.claim, owner, machine.targets, TOOLCHAIN, **options)

    return make


def number(held):
    return None if held is None else held.job_id


def age(sessions, job_id, by):
    with writing(sessions) as session:
        moment = queue.get(session, job_id).heartbeat_at - by
        session.execute(update(models.Job).values(heartbeat_at=moment, claimed_at=moment))


@pytest.mark.parametrize("owner", [ELSEWHERE, me()], ids=["elsewhere", "here"])
def test_a_run_without_its_lease_writes_nothing(claim, submit, sessions, owner, job):
    job_id = submit()
    lost = claim(owner)
    age(sessions, job_id, 2 * LEASE)
    held = claim(me())
    note_phase(sessions, held, SearchPhase("proof", 1, 3))
    note_phase(sessions, lost, SearchPhase("search", 7, 9))
    found = job(job_id)
    assert (found.phase, found.phase_done, found.phase_total) == ("proof", 1, 3)
    with pytest.raises(LeaseLostError, match="taken over"):
        SqlTrialStore(sessions, job_id, lost).add(fakes.trial(0))
    SqlTrialStore(sessions, job_id, held).add(fakes.trial(1))
    assert SqlTrialStore(sessions, job_id).trials() == [fakes.trial(1)]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_job_that_changed_after_it_was_read_is_not_claimed(
    claim, submit, sessions, monkeypatch, do, job, is_cancelled
):
    """As on a server, where two transactions can both have read a free job."""
    job_id = submit()
    if not is_cancelled:
        claim(ELSEWHERE)
    monkeypatch.setattr(lease, "is_dead", lambda owner: owner == ELSEWHERE)
    seen = job(job_id)
    do(queue.cancel, job_id) if is_cancelled else do(lease.claim_one, job_id, "a-third-host:1:1")
    with writing(sessions) as session:
        session.add(seen)
        assert lease.take(session, seen, me()) is None
    assert job(job_id).owner == (None if is_cancelled else "a-third-host:1:1")


def test_the_oldest_job_goes_first_and_to_one_owner_that_can_run_it(claim, submit, job, do):
    submit(toolchain="another")
    assert do(claims.claim, me(), ("cpu:neoverse-v2,threads=1",), "another") is None
    first, second = submit(), submit(PROBLEM + ",bias")
    taken = [claim(owner) for owner in (me(), ELSEWHERE, me())]
    assert [number(held) for held in taken] == [first, second, None]
    assert (job(first).owner, job(first).state) == (me(), "running")


def test_a_job_keeps_the_machine_of_its_last_run(claim, submit, machine, do, job):
    job_id = submit()
    assert job(job_id).host is None
    held = claim(ELSEWHERE)
    assert not do(lease.release, replace(held, owner=me()))
    assert do(lease.release, held)
    found = job(job_id)
    assert (found.host, found.state, found.crashes) == ("another-host", "queued", 0)
    held = claim(me())
    do(lease.end, held, state="failed", error="x", complete=False)
    assert job(job_id).host == machine.host


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


def test_a_heartbeat_keeps_the_job_that_a_silent_owner_loses(claim, submit, sessions, do):
    job_id = submit()
    held = claim(ELSEWHERE)
    age(sessions, job_id, LEASE / 2)
    assert claim(me()) is None
    age(sessions, job_id, LEASE)
    do(lease.beat, held)
    assert claim(me()) is None
    age(sessions, job_id, 2 * LEASE)
    assert number(claim(me())) == job_id


def test_after_an_outage_a_silent_owner_is_spared_and_a_dead_one_is_not(claim, submit, sessions):
    silent, dead, waiting = (submit(f"matmul:m={m},n=1,k=1,dtype=f32") for m in (1, 2, 3))
    assert number(claim(ELSEWHERE)) == silent
    assert number(claim(str(replace(Owner.here(), started=1)))) == dead
    age(sessions, silent, 2 * LEASE)
    assert [number(claim(me(), spares_late=True)) for _ in range(3)] == [dead, waiting, None]
    assert number(claim(me(), but=(dead, waiting))) == silent


def test_each_claim_is_a_run_of_its_own_also_of_one_owner(claim, submit, sessions, job):
    """What froze for longer than its lease meets its own process as the next owner."""
    job_id = submit()
    former = claim(me())
    age(sessions, job_id, 2 * LEASE)
    present = claim(me())
    assert (former.epoch, present.epoch) == (1, 2)
    before = job(job_id)
    with writing(sessions) as session:
        with pytest.raises(LeaseLostError, match="taken over"):
            lease.beat(session, former)
        assert not lease.holds(session, former) and lease.holds(session, present)
        assert not lease.release(session, former)
        assert not lease.end(session, former, state="done", complete=True)
        lease.crash(session, former, "signal SIGKILL")
    after = job(job_id)
    assert (after.state, after.crashes, after.epoch) == ("running", 0, 2)
    assert (after.heartbeat_at, after.claimed_at) == (before.heartbeat_at, before.claimed_at)
    with writing(sessions) as session:
        assert lease.end(session, present, state="done", complete=True)
        lease.crash(session, present, "exit status 1")
    assert (job(job_id).state, job(job_id).crashes) == ("done", 0)


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
        assert not is_dead(f"{owner}1") and not is_dead(owner.partition("@")[0]), "of other PIDs"
        assert number(claim(me())) == job_id


@pytest.fixture
def passed(monkeypatch):
    """Seconds that seem to have passed."""
    seconds, monotonic = [], time.monotonic
    clock = SimpleNamespace(monotonic=lambda: monotonic() + sum(seconds))
    monkeypatch.setattr(lease, "time", clock)
    return seconds


def finish(session, how, held):
    match how:
        case "cancelled":
            queue.cancel(session, held.job_id)
        case "failed":
            lease.end(session, held, state="failed", error="no", complete=False)
        case "damaged":
            session.execute(update(models.Job).values(seed="two"))
            assert lease.fail_damaged(session, session.get_one(models.Job, held.job_id))


@pytest.mark.parametrize("how", ["cancelled", "failed", "damaged"])
def test_a_job_that_ends_early_counts_its_time(claim, submit, sessions, how, passed, do, job):
    if how == "damaged" and sessions.kw["bind"].dialect.name != "sqlite":
        pytest.skip("columns of SQLite alone take values of another type")
    job_id = submit()
    first = claim(me())
    passed.append(100)
    do(lease.beat, first)
    assert 100 <= job(job_id).elapsed_s < 110, "what a run shows is kept if it dies"
    do(lease.release, first)
    second = claim(me())
    assert 100 <= job(job_id).elapsed_s < 110
    passed.append(50)
    do(lease.beat, second)
    do(finish, how, second)
    ended = do(Session.get_one, models.Job, job_id)
    assert 150 <= ended.elapsed_s < 170 and ended.claimed_at is None
    assert ended.complete is False and ended.finished_at is not None
    assert lease.elapsed_s(ended) == ended.elapsed_s


def test_time_after_the_last_sign_of_an_owner_is_not_counted(claim, submit, sessions, do, job):
    job_id = submit()
    claim(ELSEWHERE)
    age(sessions, job_id, timedelta(hours=1))
    do(queue.cancel, job_id)
    assert job(job_id).elapsed_s < 1


def test_jobs_of_a_former_toolchain_that_nobody_runs_are_retired(submit, machine, do, job):
    running, old, new = submit(toolchain="running"), submit(toolchain="former"), submit()
    assert do(lease.claim_one, running, me())
    do(registry.show, WorkerEntry(me(), machine, machine.targets, "former", 1))
    assert do(claims.retire, machine.targets, TOOLCHAIN) == 0, "its service lives"
    do(registry.leave, me())
    assert do(claims.retire, machine.targets, TOOLCHAIN) == 1
    found = job(old)
    assert (found.state, found.complete) == ("failed", False)
    assert "toolchain former is no longer installed here; request it again" in found.error
    assert [job(one).state for one in (running, new)] == ["running", "queued"]


@pytest.fixture
def held(sessions, submit, claim):
    job_id = submit()
    taken = claim(me())
    age(sessions, job_id, timedelta(hours=1))
    return taken


@pytest.mark.sqlite_only("a transaction that writes holds the whole database")
def test_a_busy_database_costs_one_beat(url, sessions, held, caplog, job):
    impatient = make_sessions(make_engine(url, patience_s=0.05))
    before = job(held.job_id).heartbeat_at
    with Heartbeat(impatient, held, period_s=0.02):
        with writing(sessions), caplog.at_level(logging.WARNING, "tilewise.service.jobs.heartbeat"):
            wait_until(lambda: len(caplog.records) >= 2)
        wait_until(lambda: job(held.job_id).heartbeat_at > before)
    assert "lease not extended" in caplog.text and "locked" in caplog.text


def test_it_ends_with_the_lease(sessions, held, monkeypatch):
    tries = []

    def lost(_session, held):
        tries.append(held)
        raise LeaseLostError("taken over")

    monkeypatch.setattr(lease, "beat", lost)
    with Heartbeat(sessions, held, period_s=0.01) as beating:
        wait_until(lambda: not beating._thread.is_alive())
    assert tries == [held]
