import asyncio
import json
import os
import re
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.plans.makers import LOG, PLAN, PROOF, SCRIPT
from tests.service.processes import FAKE_PROVER, wait_until
from tilewise.service.api.events.news import EncodedEvent, NewsReader
from tilewise.service.api.executors import BoundedExecutor
from tilewise.service.db import models, reading, writing
from tilewise.service.db.base import now
from tilewise.service.errors import ConflictError, LeaseLostError, NotFoundError, TamperedError
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import claims, lease, model_jobs, plans, queue
from tilewise.service.jobs.lease import LEASE, Lease
from tilewise.service.jobs.parts import parts_of
from tilewise.service.jobs.plans import Made, PackOutcome
from tilewise.service.jobs.retention import prune
from tilewise.service.workers.pool import Pool, PoolWork


@pytest.fixture
def start(sessions, url, machine, tmp_path, monkeypatch):
    """Starts a pool with a fake search and a maker of plans; stops it after the test."""
    log = tmp_path / "made.txt"
    log.touch()
    monkeypatch.setenv(LOG, str(log))
    with ExitStack() as stack:

        def make(maker="make"):
            planner = f"--planner=tests.service.plans.makers:{maker}"
            arguments = "--tuner=tests.service.fakes:tune", f"--prover={FAKE_PROVER}", planner
            work = PoolWork(machine.targets, TOOLCHAIN, 1, arguments)
            pool = Pool(sessions, url, work, poll_s=0.05)
            stack.callback(pool.stop)
            pool.start()

        yield make


def claim(sessions, machine, owner=None, **how):
    with writing(sessions) as session:
        work = owner or me(), machine.targets, TOOLCHAIN
        return claims.claim(session, *work, kinds=("model",), **how)


@pytest.mark.full
@pytest.mark.sqlite_only  # children are slow to start
def test_a_plan_waits_for_its_jobs_and_is_made_once(start, plan, look, sessions, machine):
    number = plan()
    assert claim(sessions, machine) is None, "its job waits"
    start()
    wait_until(lambda: look(number).state == "done")
    row = look(number)
    assert (row.plan, row.totals, row.script, row.proof) == (PLAN, PLAN["totals"], SCRIPT, PROOF)
    assert row.owner is row.source is row.phase is row.error is None
    made = Path(os.environ[LOG]).read_text().split()
    assert made == [str(number)] and claim(sessions, machine) is None
    with reading(sessions) as session:
        (part,) = parts_of(session, row.plan_row).problems
        assert (part.state, part.time_us) == ("done", fakes.measurement(13.0).time_us)
        assert queue.get(session, 1).state == "done"


@pytest.mark.full
@pytest.mark.sqlite_only  # children are slow to start
@pytest.mark.parametrize(("maker", "error"), [
    ("die", "the worker died 3 times; the last time: signal SIGABRT"),
    ("refuse", "no layer has a stored schedule"),
])  # fmt: skip
def test_a_plan_that_cannot_be_made_fails_with_its_reason(start, ready, look, maker, error):
    start(maker)
    wait_until(lambda: look(ready).state == "failed")
    row = look(ready)
    assert row.error == error and row.source is row.owner is None


def assert_writes_nothing(session, held, why=""):
    """A run whose lease is lost changes neither its job nor its plan."""
    assert not plans.done(session, held, Made(PLAN, PackOutcome(SCRIPT, PROOF)))
    assert not lease.end(session, held, state="failed", error="late")
    assert not lease.release(session, held) and not lease.holds(session, held)
    lease.crash(session, held, "late")
    with pytest.raises(LeaseLostError, match=why):
        lease.beat(session, held)


def test_of_two_claims_one_wins_and_the_loser_writes_nothing(sessions, machine, ready, look):
    first = claim(sessions, machine, "elsewhere:1:1")
    assert first is not None and claim(sessions, machine) is None
    assert claim(sessions, machine, but=[first.job_id]) is None
    with writing(sessions) as session:
        session.get_one(models.Plan, ready).job.heartbeat_at = now() - 2 * LEASE
    assert claim(sessions, machine, spares_late=True) is None
    second = claim(sessions, machine)
    assert second == Lease(first.job_id, me(), first.epoch + 1)
    with writing(sessions) as session:
        assert_writes_nothing(session, first)
        assert lease.holds(session, second)
    with pytest.raises(LeaseLostError):
        plans.note(sessions, first, "choosing", None)
    assert (look(ready).state, look(ready).crashes) == ("running", 0)
    with writing(sessions) as session:
        assert plans.done(session, second, Made(PLAN, PackOutcome(SCRIPT, PROOF)))
        assert lease.has_left(session, second, "done")
        assert not plans.done(session, second, Made(PLAN, PackOutcome())), "it has ended"
    assert look(ready).script == SCRIPT


def test_an_order_has_the_best_and_the_fastest_of_each_algorithm(sessions, machine, ready):
    with writing(sessions) as session:  # a graph that an earlier version has stored
        source = session.query(models.PlanSource).one()
        source.graph = json.loads(json.dumps(source.graph).replace('"op"', '"wide": "", "op"'))
    with reading(sessions) as session:
        order, module = plans.read_assignment(session, ready)
    assert module == b"module {}" and order.request.layouts == "all"
    timed, slower = order.schedules[PROBLEM]
    assert timed.algorithm == slower.algorithm and timed.time_us <= slower.time_us
    assert timed.hash != slower.hash
    assert (timed.algorithm, timed.time_us) == ("direct", fakes.measurement(13.0).time_us)


def test_what_was_changed_is_not_planned_on_and_not_served(sessions, machine, ready, look):
    with writing(sessions) as session:
        session.execute(text("UPDATE schedules SET time_us = 0.5"))
    with reading(sessions) as session:
        assert plans.read_assignment(session, ready)[0].schedules == {}
    held = claim(sessions, machine)
    with writing(sessions) as session:
        plans.done(session, held, Made(PLAN, PackOutcome(SCRIPT, PROOF)))
    plans.check(look(ready))
    with writing(sessions) as session:
        session.execute(text("UPDATE plans SET script = 'module { }'"))
    with pytest.raises(TamperedError, match="row 1 of plans"):
        plans.check(look(ready))


def test_a_damaged_row_fails_and_stands_in_nobodys_way(sessions, machine, ready, plan, look):
    second = plan(name="other.mlir")
    with writing(sessions) as session:
        session.execute(text("UPDATE plans SET problems = '[1]' WHERE id = :id"), {"id": ready})
    held = claim(sessions, machine)
    assert held is not None and held.job_id == look(second).job_id
    with reading(sessions) as session:
        row = session.get_one(models.Plan, ready)
        assert row.job.state == "failed" and "damaged" in (row.job.error or "")


def test_failed_plans_are_forgotten_in_time(sessions, machine, ready, plan, look):
    with writing(sessions) as session:
        held = claims.claim(session, me(), machine.targets, TOOLCHAIN)
        assert lease.end(session, held, state="failed", error="x")
    called_off = plan(name="another.mlir")
    with writing(sessions) as session:
        model_jobs.cancel_plan(session, called_off)
    other = plan()
    assert prune(sessions, timedelta(days=1), 5).plans == 0
    assert prune(sessions, timedelta(0), 5, dry_run=True).plans == 2
    assert prune(sessions, timedelta(0), 5).plans == 2
    assert look(other).state == "queued"
    with pytest.raises(NotFoundError):
        look(ready)


def test_a_run_whose_plan_was_cancelled_writes_nothing(sessions, machine, ready, look):
    held = claim(sessions, machine)
    plans.note(sessions, held, "proving", PLAN)
    with writing(sessions) as session:
        model_jobs.cancel_plan(session, ready)
        model_jobs.cancel_plan(session, ready)
    with pytest.raises(LeaseLostError):
        plans.note(sessions, held, "proving", None)
    with writing(sessions) as session:
        assert_writes_nothing(session, held, "was cancelled")
    assert look(ready).state == "cancelled" and look(ready).plan == PLAN
    assert claim(sessions, machine) is None
    with pytest.raises(ConflictError, match="plan 1 is done"), writing(sessions) as session:
        session.get_one(models.Plan, ready).job.state = "done"
        model_jobs.cancel_plan(session, ready)


OTHERS = [f"matmul:m={m},n=48,k=32,dtype=f32" for m in (65, 66, 67)]
YEAR = timedelta(days=365)


@pytest.fixture
def wide(plan, submit, sessions):
    number = plan()
    jobs = {problem: submit(problem) for problem in OTHERS}
    with writing(sessions) as session:
        row = session.get_one(models.Plan, number)
        row.variants = [{"problem": problem, "job": job} for problem, job in jobs.items()]
    return number


@pytest.fixture
def end(sessions):
    def of(job_id, wrong_by=timedelta(0)):
        with writing(sessions) as session:
            job = session.get_one(models.Job, job_id)
            job.state, job.finished_at = "cancelled", now() + wrong_by

    return of


@pytest.fixture
def told(sessions):
    """The problems that a plan tells after a number, each with its number; of a new process."""

    def of(number, after=-1):
        reader = NewsReader(BoundedExecutor("reads", 1), sessions)
        (news,) = asyncio.run(reader.every({("plan", number): after})).values()
        assert isinstance(news, EncodedEvent) and news.is_settled
        found = [json.loads(re.findall(rb"data: (.*)", event)[0]) for _, event in news.parts]
        assert [one["done"] - 1 for one in found] == [number for number, _ in news.parts]
        assert all(one["total"] == 4 for one in found)
        return [(one["done"] - 1, one["problem"]) for one in found]

    return of


def test_what_ends_later_has_a_later_number_whatever_its_clock_says(wide, end, told):
    assert told(wide) == []
    end(4, YEAR)
    assert told(wide) == [(0, OTHERS[1])]
    end(3, -YEAR)
    first = [(0, OTHERS[1]), (1, OTHERS[0])]
    assert told(wide) == first
    end(5, -2 * YEAR)
    end(1)
    assert told(wide, 1) == [(2, PROBLEM), (3, OTHERS[2])], "told at once: in the plan's order"
    assert told(wide) == [*first, (2, PROBLEM), (3, OTHERS[2])]


def test_numbers_outlive_a_cancellation_and_go_with_their_plan(wide, end, told, sessions):
    end(5)
    with writing(sessions) as session:
        model_jobs.cancel_plan(session, wide)
    assert told(wide) == [(0, OTHERS[2])]
    end(3)
    assert told(wide) == [(0, OTHERS[2]), (1, OTHERS[0])]
    with writing(sessions) as session:
        session.delete(session.get_one(models.Plan, wide))
    with reading(sessions) as session:
        assert session.query(models.PlanCompletion).count() == 0
