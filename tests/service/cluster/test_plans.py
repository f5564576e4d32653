import copy
import json
from datetime import timedelta

import pytest
from sqlalchemy import text

from tests.service.cluster.conftest import FIRST, FOREIGN, SECOND
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.plan_rows import GRAPH
from tests.service.plans.makers import PROOF, SCRIPT
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.kernels.target import detect
from tilewise.search.networks.plan import (
    SCHEMA,
    Plan,
    PlannedNode,
    PlannedTensor,
    PlannedUse,
    Totals,
)
from tilewise.search.networks.variants import plain
from tilewise.service.cluster import planning
from tilewise.service.cluster.planning import MOST_MISSED
from tilewise.service.db import models, reading, writing
from tilewise.service.db.base import now
from tilewise.service.errors import UnreachableError
from tilewise.service.jobs import claims, model_jobs, plans
from tilewise.service.jobs.lease import LEASE
from tilewise.service.jobs.plans import Made, PackOutcome, PlanOrder


def planned():
    """A plan of `GRAPH` on this machine, for which no schedule is stored."""
    nodes = tuple(
        PlannedNode(
            node.kind, node.op, node.where,
            *(tuple(PlannedUse(one.tensor, one.shape, one.role, plain(one.shape)) for one in uses)
              for uses in (node.reads, node.makes)),
            node.found, node.place, node.found.problem, None, "no schedule of it is stored",
        )
        for node in GRAPH.nodes
    )  # fmt: skip
    tensors = tuple(
        PlannedTensor(one.shape, one.dtype, one.is_given, one.is_result, plain(one.shape))
        for one in GRAPH.tensors
    )
    target, totals = detect().canonical, Totals(1.0, 2.0, 3.0)
    made = Plan(SCHEMA, "one.mlir", target, "hot", True, nodes, tensors, (), totals)
    return json.loads(json.dumps(made.to_json()))


PLAN = planned()
MADE = to_json(Made(PLAN, PackOutcome(SCRIPT, PROOF)))


def test_a_worker_makes_a_plan_before_it_runs_a_job(driver, cluster, ready, submit, look):
    waiting = submit(f"{PROBLEM},batch=2")
    cluster.join(FIRST)
    made = driver()
    made.tick()
    (task,) = cluster.plans
    order = from_json(PlanOrder, json.loads(task.order))
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


def forged(*path, value):
    made = copy.deepcopy(MADE)
    place = made
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return made


STEPS = [{"step": "register", "rows": 4, "cols": 16, "outer": "cols"}]
TIMED = {"algorithm": "direct", "hash": "0" * 16, "steps": STEPS, "time_us": 1.0}


@pytest.mark.full
@pytest.mark.parametrize(
    "made",
    [
        forged("plan", "target", value="cpu:vax,threads=1"),
        forged("plan", "model", value="other.mlir"),
        forged("plan", "extra", value=1),
        forged("plan", "nodes", value=[]),
        forged("plan", "tensors", value=[]),
        forged("plan", "nodes", 0, "op", value="linalg.conv"),
        forged("plan", "nodes", 0, "problem", value="matmul:m=8,n=8,k=8,dtype=f32"),
        forged("plan", "nodes", 0, "problem", value="anything"),
        forged("plan", "nodes", 0, "schedule", value=TIMED),
        forged("plan", "nodes", 0, "schedule", value=TIMED | {"steps": STEPS * 2}),
        forged("plan", "totals", "chosen_us", value=-1.0),
        forged("plan", "totals", "chosen_us", value=float("nan")),
        forged("packed", "proof", value=None),
        forged("packed", "proof", "max_error", value=9.0),
        forged("packed", "proof", "mlir", value="a\nb"),
        forged("packed", "script", value=5),
        forged("plan", "totals", "chosen_us", value=10**400),
        5,
        ["died"],
    ],
)
def test_a_plan_of_another_order_is_refused_and_made_again(driver, cluster, ready, look, made):
    driving = driver()
    cluster.join(FIRST)
    driving.tick()
    cluster.plans[0].end(made)
    driving.tick()
    row = look(ready)
    assert (row.state, row.plan, row.script, row.crashes) == ("queued", None, None, 1)
    driving._paused.clear()
    driving.tick()
    cluster.plans[1].end(MADE)
    driving.tick()
    row = look(ready)
    assert (row.state, row.plan) == ("done", PLAN)
    assert row.proof == PROOF | {"by": cluster.machine.host}


def test_a_plan_may_have_any_legal_schedule(driver, cluster, ready, look):
    schedule = Schedule.from_json(STEPS)
    made = forged("plan", "nodes", 0, "schedule", value=TIMED | {"hash": schedule.hash})
    driving = driver()
    cluster.join(FIRST)
    driving.tick()
    cluster.plans[0].end(made)
    driving.tick()
    assert look(ready).state == "done"


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
    second, read = plan(name="other.mlir"), plans.read_order

    def refuse(session, number):
        if number == ready:
            raise ScheduleError("step 1 cannot be read")
        return read(session, number)

    monkeypatch.setattr(plans, "read_order", refuse)
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
    monkeypatch.setattr(planning, "BEAT_S", 0.0)
    made = driver()
    cluster.join(FIRST)
    made.tick()
    with writing(sessions) as session:
        model_jobs.cancel_plan(session, ready)
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
        session.get_one(models.Plan, ready).job.heartbeat_at = now() - 2 * LEASE
    second.tick()
    assert len(cluster.plans) == 2, "the first has been silent for long"
    cluster.plans[0].end(to_json(Made(PLAN, PackOutcome(error="late"))))
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
        assert model_jobs.planning(session) == {ready: cluster.present[FIRST].owner}
    submit(f"{PROBLEM},batch=2")
    second.tick()
    assert not cluster.tasks
    task.end(MADE)
    first._plans.settle()
    with reading(sessions) as session:
        assert model_jobs.planning(session) == {}
    second.tick()
    assert [one.offer.worker for one in cluster.tasks] == [FIRST]


def test_a_plan_that_nobody_can_make_fails_in_the_end(plan, submit, run, sessions, machine, look):
    hour, number = timedelta(hours=1), plan()

    def note(*served):
        with writing(sessions) as session:
            return claims.note_unserved(session, served, hour)

    assert note() == 0 and look(number).unserved_since is None, "its job waits"
    run(submit())
    with writing(sessions) as session:  # as where the service was stopped for long
        session.execute(text("UPDATE jobs SET created_at = '2020-01-01 00:00:00'"))
        session.execute(text("UPDATE jobs SET finished_at = '2020-01-01 00:00:00'"))
    assert note() == 0 and look(number).unserved_since is not None
    assert note((machine.target, TOOLCHAIN)) == 0 and look(number).unserved_since is None
    assert note() == 0
    with writing(sessions) as session:
        session.get_one(models.Plan, number).job.unserved_since = now() - 2 * hour
    assert note() == 1
    row = look(number)
    assert (row.state, row.error) == (
        "failed",
        f"no live worker has served {machine.target} with {TOOLCHAIN} for 3600 s; start one, or "
        "ask for a target of GET /v1/targets",
    )


def test_a_plan_that_is_taken_waits_for_no_worker_any_more(driver, cluster, ready, sessions, look):
    with writing(sessions) as session:
        session.get_one(models.Plan, ready).job.unserved_since = now() - timedelta(days=1)
    cluster.join(FIRST)
    driver().tick()
    assert (look(ready).state, look(ready).unserved_since) == ("running", None)
