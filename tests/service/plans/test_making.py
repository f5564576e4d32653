import os
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.plan_rows import wanted
from tests.service.plans.makers import LOG, PLAN, PROOF, SCRIPT
from tests.service.processes import wait_until
from tilewise.search.records import TuneRequest
from tilewise.service.db import models, reading, writing
from tilewise.service.db.base import now
from tilewise.service.errors import (
    ConflictError,
    DamagedError,
    LeaseLostError,
    NotFoundError,
    TamperedError,
)
from tilewise.service.faults import tell_once
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import claims, lease, model_jobs, plans, queue
from tilewise.service.jobs.lease import LEASE, Lease
from tilewise.service.jobs.parts import parts_of
from tilewise.service.jobs.plans import Made, PackOutcome
from tilewise.service.jobs.queue import Submitter
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
def test_a_killed_workers_plan_is_made_by_another(start, ready, look):
    first = start("hang_once")
    wait_until(lambda: look(ready).phase == "proving")
    (child,) = first._children.values()
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: look(ready).state == "done")
    assert (look(ready).crashes, look(ready).epoch, made(ready)) == (1, 2, 1)


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
def test_a_pool_that_stops_gives_its_plan_back(start, ready, look):
    pool = start("hang")
    wait_until(lambda: look(ready).phase == "choosing")
    pool.stop()
    row = look(ready)
    assert (row.state, row.crashes, row.phase) == ("queued", 0, None) and row.source


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


def test_a_damaged_trial_is_passed_over(sessions, machine, ready, caplog):
    tell_once.cache_clear()
    with reading(sessions) as session:
        _best, slower = plans.read_order(session, ready)[0].schedules[PROBLEM]
    with writing(sessions) as session:
        damage = text("UPDATE trials SET steps = '[1]' WHERE hash = :hash")
        session.execute(damage, {"hash": slower.hash})
    with reading(sessions) as session:
        found = plans.read_order(session, ready)[0].schedules[PROBLEM]
    assert found and slower.hash not in {timed.hash for timed in found}
    assert f"trial {slower.hash} of {PROBLEM} is damaged" in caplog.text


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


@pytest.mark.sqlite_only  # which keeps any value in any column
@pytest.mark.parametrize(
    "change",
    ["UPDATE plan_sources SET module = 5", "UPDATE plan_sources SET module = 'text'",
     "UPDATE plan_sources SET module = NULL", "UPDATE plan_sources SET module = x'0102'",
     "UPDATE plan_sources SET graph = '[]'", "DELETE FROM plan_sources"],
)  # fmt: skip
def test_a_source_that_cannot_be_read_is_told_as_damage(sessions, ready, change):
    with writing(sessions) as session:
        session.execute(text(change))
    with (
        reading(sessions) as session,
        pytest.raises(DamagedError, match=f"graph or module of plan {ready} cannot be read"),
    ):
        plans.read_order(session, ready)


def test_plans_of_another_toolchain_are_retired(sessions, machine, plan, look):
    number = plan("an older toolchain")
    with writing(sessions) as session:
        assert claims.retire(session, machine.targets, TOOLCHAIN) == 2, "with its job"
    assert look(number).state == "failed" and "toolchain" in look(number).error


def test_what_was_changed_is_refused(sessions, machine, ready, look):
    held = claim(sessions, machine)
    with writing(sessions) as session:
        plans.done(session, held, Made(PLAN, PackOutcome(SCRIPT, PROOF)))
    plans.check(look(ready))
    with writing(sessions) as session:
        session.execute(text("UPDATE plans SET script = 'module { }'"))
    with pytest.raises(TamperedError, match="row 1 of plans"):
        plans.check(look(ready))


def test_a_choice_that_was_changed_is_not_continued_from(sessions, machine, ready):
    held = claim(sessions, machine)
    plans.note(sessions, held, "proving", PLAN)
    with reading(sessions) as session:
        assert plans.read_order(session, ready)[0].plan == PLAN
    with writing(sessions) as session:
        session.get_one(models.Plan, ready).plan = {**PLAN, "totals": {"chosen_us": 0.5}}
    with reading(sessions) as session:
        assert plans.read_order(session, ready)[0].plan is None


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


def test_who_makes_a_plan_is_known_until_it_is_silent(sessions, machine, ready):
    claim(sessions, machine, "elsewhere:1:1")
    for by, known in ((timedelta(0), {ready: "elsewhere:1:1"}), (2 * LEASE, {})):
        with writing(sessions) as session:
            session.get_one(models.Plan, ready).job.heartbeat_at = now() - by
        with reading(sessions) as session:
            assert model_jobs.planning(session) == known


@pytest.mark.full
@pytest.mark.sqlite_only  # children are slow to start
def test_a_plan_that_is_cancelled_is_made_no_further(start, ready, plan, look, sessions):
    pool = start("hang")
    wait_until(lambda: look(ready).phase == "choosing")
    (child,) = pool._children.values()
    with writing(sessions) as session:
        assert model_jobs.cancel_plan(session, ready).job.state == "cancelled"
    pool.wake()
    wait_until(lambda: not pool._children)
    assert child.poll() is not None
    row = look(ready)
    assert (row.state, row.crashes, row.error) == ("cancelled", 0, None) and row.finished_at
    assert row.owner is row.source is row.phase is None
    assert plan() != ready and look(ready).state == "cancelled"


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


def test_jobs_of_a_cancelled_plan_go_on(sessions, plan, look):
    number = plan()
    with writing(sessions) as session:
        model_jobs.cancel_plan(session, number)
        assert queue.get(session, 1).state == "queued"
    again = plan()
    assert again != number and look(again).problems[0]["job"] == 1


def test_a_request_for_the_same_joins_the_active_plan_alone(sessions, machine, plan, look):
    first = plan()
    assert plan() == first and plan(name="other.mlir") == 2
    assert plan("an older toolchain") == 3
    with writing(sessions) as session:
        session.execute(text("UPDATE plans SET problems = '[1]' WHERE id = 2"))
    assert plan(name="other.mlir") == 4, "a damaged one will not be made"
    with reading(sessions) as session:
        assert "damaged" in (session.get_one(models.Plan, 2).job.error or "")
    with writing(sessions) as session:
        session.get_one(models.Plan, 1).job.state = "done"
    assert plan() == 5 and look(5).state == "queued"
    for changed in (
        {"layouts": "model"},
        {"request": TuneRequest(trials=5)},
        {"sha256": "cd" * 32},
    ):
        other = replace(wanted(machine.target), **changed)
        with writing(sessions) as session:
            assert model_jobs.ask_to_plan(session, other, TOOLCHAIN, Submitter()).id > 5, changed


@pytest.mark.sqlite_only  # a server keeps long values apart by itself
def test_no_change_of_a_lease_writes_the_module(sessions, url, machine, ready):
    """SQLite writes a row whole where a value has another length than before."""
    file, size = Path(url.removeprefix("sqlite:///")), 4 << 20
    with writing(sessions) as session:
        session.execute(text(f"UPDATE plan_sources SET module = randomblob({size})"))
    with reading(sessions) as session:
        session.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
    held = claim(sessions, machine)
    for phase in ("choosing", "proving"):
        plans.note(sessions, held, phase, None)
    assert file.with_name(f"{file.name}-wal").stat().st_size < size / 4
    with writing(sessions) as session:
        assert lease.release(session, held) and not lease.holds(session, held)


def test_a_strict_plan_is_another_with_problems_of_its_own(sessions, machine, plan, look):
    first = plan()
    strict = wanted(machine.target, "strict")
    for _twice in range(2):
        with writing(sessions) as session:
            made = model_jobs.ask_to_plan(session, strict, TOOLCHAIN, Submitter())
            assert (made.id, made.accuracy) == (first + 1, "strict")
    jobs = []
    for number, suffix in ((first, ""), (first + 1, ",accuracy=strict")):
        row = look(number)
        assert [one["problem"] for one in row.problems] == [f"{PROBLEM}{suffix}"]
        jobs += [one["job"] for one in row.problems]
        with reading(sessions) as session:
            order, _ = plans.read_order(session, number)
        assert [found.problem for found in order.graph.layers] == [f"{PROBLEM}{suffix}"]
        assert (order.accuracy == "strict") is bool(suffix)
    assert len(set(jobs)) == 2
    assert strict.digest != replace(strict, accuracy="standard").digest
