"""Plans that workers of a cluster make and say to the service, as searches are."""

import json

import pytest

from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.plan_rows import GRAPH
from tests.service.plans import makers
from tests.service.plans.makers import PROOF, SCRIPT
from tests.service.runs.conftest import OWNER, changed
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.kernels.target import detect
from tilewise.search.networks import plan as plans
from tilewise.search.networks.variants import plain
from tilewise.service.db import models, writing
from tilewise.service.errors import LeaseLostError, ServiceError
from tilewise.service.jobs import model_jobs
from tilewise.service.jobs.plans import CHOOSING, PROVING, Made, PackOutcome, digest
from tilewise.service.runs.http import HttpPlanStore
from tilewise.service.runs.wire import MadeWire
from tilewise.service.workers.planning import run_claimed


def planned():
    """A plan of `GRAPH` on this machine, for which no schedule is stored."""

    (node,) = GRAPH.nodes
    reads, makes = (
        tuple(plans.PlannedUse(one.tensor, one.shape, one.role, plain(one.shape)) for one in uses)
        for uses in (node.reads, node.makes)
    )
    planned = plans.PlannedNode(
        node.kind, node.op, node.where, reads, makes, node.found,
        node.place, node.found.problem, None, "no schedule of it is stored",
    )  # fmt: skip
    tensors = tuple(
        plans.PlannedTensor(one.shape, one.dtype, one.is_given, one.is_result, plain(one.shape))
        for one in GRAPH.tensors
    )
    of = plans.SCHEMA, "one.mlir", detect().canonical, "hot", True
    made = plans.Plan(*of, (planned,), tensors, (), plans.Totals(1.0, 2.0, 3.0))
    return json.loads(json.dumps(made.to_json()))


PLAN = planned()
MADE = to_json(Made(PLAN, PackOutcome(SCRIPT, PROOF)))
OLD = {name: part for name, part in PLAN.items() if name != "accuracy"}


@pytest.fixture
def keeper(calls, offer, ready):
    given = offer()
    assert given.kind == "model"
    return HttpPlanStore(calls(given), OWNER, TOOLCHAIN)


def test_a_worker_makes_and_stores_a_plan(keeper, ready, look, sessions):
    order, module = keeper.assignment()
    assert (order.plan_id, list(order.schedules), module) == (ready, [PROBLEM], b"module {}")

    def make(order, module, note):
        note(CHOOSING, None)
        assert (look(ready).state, look(ready).phase) == ("running", CHOOSING)
        note(PROVING, PLAN)
        assert (look(ready).phase, look(ready).plan) == (PROVING, PLAN)
        with writing(sessions) as session:  # as an earlier version has chosen it
            row = session.get_one(models.Plan, ready)
            row.plan, row.digest = OLD, digest(row, OLD, None)
        note(PROVING, OLD)
        return from_json(Made, MADE | {"plan": OLD})

    run_claimed(keeper, make)
    row = look(ready)
    assert (row.state, row.plan, row.script, row.source) == ("done", OLD, SCRIPT, None)
    assert row.proof == PROOF | {"by": "worker-host"}
    assert keeper.done(from_json(Made, MADE)), "the first answer may have been lost"


STEPS = [{"step": "register", "rows": 4, "cols": 16, "outer": "cols"}]
TIMED = {"algorithm": "direct", "hash": "0" * 16, "steps": STEPS, "time_us": 1.0}


OTHERS = [
    ("plan.target", "cpu:vax,threads=1"), ("plan.extra", 1), ("plan.tensors", []),
    ("plan.nodes.0.op", "linalg.conv"), ("plan.nodes.0.problem", "matmul:m=8,n=8,k=8,dtype=f32"),
    ("plan.nodes.0.schedule", TIMED | {"steps": STEPS * 2}),
    ("plan.totals.chosen_us", float("nan")), ("packed.proof", None),
    ("packed.proof.max_error", 9.0), ("packed.script", 5),
]  # fmt: skip


@pytest.mark.full
def test_a_plan_of_another_order_is_refused(keeper, ready, look):
    for path, value in OTHERS:
        made = changed(MADE, path, value)
        with pytest.raises(ServiceError, match="refuses job"):
            keeper._ended("/made", MadeWire(epoch=keeper.epoch, made=made))
        if path.startswith("plan."):
            with pytest.raises(ServiceError, match="refuses job"):
                keeper.note(PROVING, made["plan"])
        row = look(ready)
        assert (row.state, row.plan, row.script) == ("running", None, None), (path, value)


def test_what_cannot_be_planned_fails(keeper, ready, look):
    run_claimed(keeper, makers.refuse)
    row = look(ready)
    assert (row.state, row.error) == ("failed", "no layer has a stored schedule")


def test_an_interrupted_or_cancelled_plan_is_released(keeper, calls, offer, ready, look, sessions):
    def interrupt(*_order):
        raise SystemExit

    with pytest.raises(SystemExit):
        run_claimed(keeper, interrupt)
    assert (look(ready).state, look(ready).crashes) == ("queued", 0)
    with writing(sessions) as session:
        session.query(models.Offer).delete()
    again = calls(offer())
    keeper = HttpPlanStore(again, OWNER, TOOLCHAIN)
    assert again.goes_on()
    with writing(sessions) as session:
        model_jobs.cancel_plan(session, ready)
    assert again.goes_on() is False
    assert keeper.done(from_json(Made, MADE)) is False
    assert look(ready).state == "cancelled"


def test_a_plan_is_not_begun_as_a_search(begin, offer, ready):
    with pytest.raises(LeaseLostError, match="job"):
        begin(offer())
