"""Plans that workers of a cluster make: what a driver gives them, and what it makes of each end."""

import json
from datetime import timedelta

from sqlalchemy import text

from kernels.errors import ScheduleError
from kernels.system.typed_json import from_json, to_json
from service.cluster.plans import giving
from service.cluster.plans.giving import MOST_MISSED
from service.db import models, reading, writing
from service.db.base import now
from service.errors import UnreachableError
from service.leases.table import LEASE
from service.plans import asked, lease, orders
from service.plans.making import Made, Packed
from service.plans.orders import Order
from tests.service.cluster.conftest import FIRST, FOREIGN, SECOND
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.plans.makers import PLAN, PROOF, SCRIPT

MADE = to_json(Made(PLAN, Packed(SCRIPT, PROOF)))


def test_a_worker_makes_a_plan_before_it_runs_a_job(driver, cluster, ready, submit, look):
    waiting = submit(f"{PROBLEM},batch=2")
    cluster.join(FIRST)
    made = driver()
    made.tick()
    (task,) = cluster.plans
    order = from_json(Order, json.loads(task.order))
    assert (task.worker, task.module) == (FIRST, b"module {}")
    assert (order.plan_id, list(order.schedules)) == (ready, [PROBLEM])
    assert (look(ready).state, look(ready).phase) == ("running", "choosing")
    made.tick()
    assert not cluster.tasks and len(cluster.plans) == 1, "the worker is busy"
    task.end(MADE)
    made.tick()
    row = look(ready)
    assert (row.state, row.plan, row.script, row.source) == ("done", PLAN, SCRIPT, None)
    assert [one.offer.job_id for one in cluster.tasks] == [waiting]


def test_a_worker_of_another_target_makes_no_plan(driver, cluster, ready):
    cluster.join(FIRST, targets=(FOREIGN,))
    cluster.join(SECOND, toolchain="another")
    driver().tick()
    assert not cluster.plans


def test_what_cannot_be_planned_fails_and_deaths_are_counted(driver, cluster, ready, look):
    made = driver()
    cluster.join(FIRST)
    for count, ending in enumerate((None, {"died": "signal SIGKILL"}, {"refused": "no"}), 1):
        made.tick()
        cluster.plans[-1].end(ending)
        made.tick()
        made.tick()
        assert len(cluster.plans) == count, "the worker is paused, or the plan has ended"
        made._paused.clear()
    row = look(ready)
    assert (row.state, row.error, row.crashes) == ("failed", "no", 2)


def test_a_plan_that_cannot_be_given_fails_and_holds_up_no_other(
    driver, cluster, ready, plan, look, monkeypatch
):
    second, read = plan(name="other.mlir"), orders.read

    def refuse(session, number):
        if number == ready:
            raise ScheduleError("step 1 cannot be read")
        return read(session, number)

    monkeypatch.setattr(orders, "read", refuse)
    made = driver()
    cluster.join(FIRST)
    made.tick()
    made.tick()
    assert (look(ready).state, look(ready).error) == ("failed", "step 1 cannot be read")
    assert [json.loads(task.order)["plan_id"] for task in cluster.plans] == [second]


def test_a_plan_waits_while_its_cluster_is_away(driver, cluster, ready, look, monkeypatch):
    def refuse(*_order):
        raise UnreachableError("the scheduler does not answer")

    made = driver()
    cluster.join(FIRST)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "submit_plan", refuse)
        made.tick()
    assert look(ready).state == "queued"
    made.tick()
    assert look(ready).state == "running"


def test_a_worker_that_leaves_and_a_driver_that_stops_give_plans_back(
    driver, cluster, ready, look, stopped
):
    made = driver()
    cluster.join(FIRST)
    made.tick()
    del cluster.present[FIRST]
    for _ in range(MOST_MISSED + 1):
        made.tick()
    assert cluster.plans[0].is_cancelled
    assert (look(ready).state, look(ready).crashes) == ("queued", 0)
    cluster.join(SECOND)
    made.tick()
    assert len(cluster.plans) == 2
    made.run(stopped)
    assert cluster.plans[1].is_cancelled and look(ready).state == "queued"


def test_a_plan_that_is_cancelled_is_taken_from_its_worker(
    driver, cluster, ready, sessions, look, monkeypatch
):
    monkeypatch.setattr(giving, "BEAT_S", 0.0)
    made = driver()
    cluster.join(FIRST)
    made.tick()
    with writing(sessions) as session:
        asked.cancel(session, ready)
    made.tick()
    (task,) = cluster.plans
    assert task.is_cancelled and not made._plans.busy
    assert look(ready).state == "cancelled"


def test_of_two_drivers_one_makes_a_plan(driver, cluster, ready, sessions, look):
    first, second = driver("driver-host:1:1"), driver("driver-host:2:2")
    cluster.join(FIRST)
    cluster.join(SECOND)
    first.tick()
    second.tick()
    assert len(cluster.plans) == 1
    with writing(sessions) as session:
        session.get_one(models.Plan, ready).heartbeat_at = now() - 2 * LEASE
    second.tick()
    assert len(cluster.plans) == 2, "the first has been silent for long"
    cluster.plans[0].end(to_json(Made(PLAN, Packed(error="late"))))
    first.tick()
    assert look(ready).state == "running"
    cluster.plans[1].end(MADE)
    second.tick()
    assert (look(ready).state, look(ready).script) == ("done", SCRIPT)


def test_a_worker_that_makes_a_plan_gets_nothing_from_another_driver(
    driver, cluster, ready, submit, sessions
):
    first, second = driver("driver-host:1:1"), driver("driver-host:2:2")
    cluster.join(FIRST)
    first.tick()
    (task,) = cluster.plans
    with reading(sessions) as session:
        assert lease.makers(session) == {ready: cluster.present[FIRST].owner}
    submit(f"{PROBLEM},batch=2")
    second.tick()
    assert not cluster.tasks
    task.end(MADE)
    first._plans.settle()
    with reading(sessions) as session:
        assert lease.makers(session) == {}
    second.tick()
    assert [one.offer.worker for one in cluster.tasks] == [FIRST]


def test_a_plan_that_nobody_can_make_fails_in_the_end(plan, submit, run, sessions, machine, look):
    hour, number = timedelta(hours=1), plan()

    def note(*served):
        with writing(sessions) as session:
            return lease.note_unserved(session, served, hour)

    assert note() == 0 and look(number).unserved_since is None, "its job waits"
    run(submit())
    with writing(sessions) as session:  # as where the service was stopped for long
        session.execute(text("UPDATE plans SET created_at = '2020-01-01 00:00:00'"))
        session.execute(text("UPDATE jobs SET finished_at = '2020-01-01 00:00:00'"))
    assert note() == 0 and look(number).unserved_since is not None
    assert note((machine.target, TOOLCHAIN)) == 0 and look(number).unserved_since is None
    assert note() == 0
    with writing(sessions) as session:
        session.get_one(models.Plan, number).unserved_since = now() - 2 * hour
    assert note() == 1
    row = look(number)
    assert (row.state, row.error) == (
        "failed",
        f"no live worker has served {machine.target} with {TOOLCHAIN} for 3600 s; start one, or "
        "ask for a target of GET /v1/targets",
    )


def test_a_plan_that_is_taken_waits_for_no_worker_any_more(driver, cluster, ready, sessions, look):
    with writing(sessions) as session:
        session.get_one(models.Plan, ready).unserved_since = now() - timedelta(days=1)
    cluster.join(FIRST)
    driver().tick()
    assert (look(ready).state, look(ready).unserved_since) == ("running", None)
