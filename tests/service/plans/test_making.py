import os
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.plans.makers import LOG, PLAN, PROOF, SCRIPT
from tests.service.processes import wait_until
from tilewise.service.db import models, reading, writing
from tilewise.service.db.base import now
from tilewise.service.errors import (
    ConflictError,
    LeaseLostError,
    NotFoundError,
    TamperedError,
)
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import claims, lease, model_jobs, plans, queue
from tilewise.service.jobs.lease import LEASE, Lease
from tilewise.service.jobs.parts import parts_of
from tilewise.service.jobs.plans import Made, PackOutcome
from tilewise.service.jobs.retention import prune


def made(number: int) -> int:
    return Path(os.environ[LOG]).read_text().split().count(str(number))


def claim(sessions, machine, owner=None, **how):
    with writing(sessions) as session:
        how = {"kinds": ("model",), **how}
        return claims.claim(session, owner or me(), machine.targets, TOOLCHAIN, **how)


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
    assert made(number) == 1 and claim(sessions, machine) is None
    with reading(sessions) as session:
        (part,) = parts_of(session, row.plan_row).problems
        assert (part.state, part.time_us) == ("done", fakes.measurement(13.0).time_us)
        assert queue.get(session, 1).state == "done"


@pytest.mark.full
@pytest.mark.sqlite_only  # children are slow to start
def test_a_plan_that_kills_its_workers_fails_after_three(start, ready, look):
    start("die")
    wait_until(lambda: look(ready).state == "failed")
    row = look(ready)
    assert row.error == "the worker died 3 times; the last time: signal SIGABRT"
    assert row.source is row.owner is None


@pytest.mark.full
@pytest.mark.sqlite_only  # children are slow to start
def test_what_cannot_be_planned_fails_with_its_reason(start, ready, look):
    start("refuse")
    wait_until(lambda: look(ready).state == "failed")
    assert look(ready).error == "no layer has a stored schedule"


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
        assert not plans.done(session, first, Made(PLAN, PackOutcome()))
        assert not lease.end(session, first, state="failed", error="late") and not lease.release(
            session, first
        )
        lease.crash(session, first, "late")
        with pytest.raises(LeaseLostError):
            lease.beat(session, first)
        assert lease.holds(session, second) and not lease.holds(session, first)
    with pytest.raises(LeaseLostError):
        plans.note(sessions, first, "choosing", None)
    assert (look(ready).state, look(ready).crashes) == ("running", 0)
    with writing(sessions) as session:
        assert plans.done(session, second, Made(PLAN, PackOutcome(SCRIPT, PROOF)))
        assert lease.has_left(session, second, "done")
        assert not plans.done(session, second, Made(PLAN, PackOutcome())), "it has ended"
    assert look(ready).script == SCRIPT


def test_an_order_has_the_best_and_the_fastest_of_each_algorithm(sessions, machine, ready):
    with reading(sessions) as session:
        order, module = plans.read_order(session, ready)
    assert module == b"module {}" and order.layouts == "all"
    timed, slower = order.schedules[PROBLEM]
    assert timed.algorithm == slower.algorithm and timed.time_us <= slower.time_us
    assert timed.hash != slower.hash
    assert (timed.algorithm, timed.time_us) == ("direct", fakes.measurement(13.0).time_us)


def test_a_schedule_that_was_changed_is_not_planned_on(sessions, ready):
    with writing(sessions) as session:
        session.execute(text("UPDATE schedules SET time_us = 0.5"))
    with reading(sessions) as session:
        assert plans.read_order(session, ready)[0].schedules == {}


def test_a_damaged_row_fails_and_stands_in_nobodys_way(sessions, machine, ready, plan, look):
    second = plan(name="other.mlir")
    with writing(sessions) as session:
        session.execute(text("UPDATE plans SET problems = '[1]' WHERE id = :id"), {"id": ready})
    held = claim(sessions, machine)
    assert held is not None and held.job_id == look(second).job_id
    with reading(sessions) as session:
        row = session.get_one(models.Plan, ready)
        assert row.job.state == "failed" and "damaged" in (row.job.error or "")


def test_what_was_changed_is_refused(sessions, machine, ready, look):
    held = claim(sessions, machine)
    with writing(sessions) as session:
        plans.done(session, held, Made(PLAN, PackOutcome(SCRIPT, PROOF)))
    plans.check(look(ready))
    with writing(sessions) as session:
        session.execute(text("UPDATE plans SET script = 'module { }'"))
    with pytest.raises(TamperedError, match="row 1 of plans"):
        plans.check(look(ready))


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
        assert not lease.holds(session, held)
        with pytest.raises(LeaseLostError, match="was cancelled"):
            lease.beat(session, held)
    with pytest.raises(LeaseLostError):
        plans.note(sessions, held, "proving", None)
    with writing(sessions) as session:
        assert not plans.done(session, held, Made(PLAN, PackOutcome(SCRIPT, PROOF)))
        assert not lease.end(session, held, state="failed", error="late") and not lease.release(
            session, held
        )
        lease.crash(session, held, "late")
    assert look(ready).state == "cancelled" and look(ready).plan == PLAN
    assert claim(sessions, machine) is None
    with pytest.raises(ConflictError, match="plan 1 is done"), writing(sessions) as session:
        session.get_one(models.Plan, ready).job.state = "done"
        model_jobs.cancel_plan(session, ready)
