"""Plans that workers of a cluster make and say to the service, as searches are."""

import copy
import json

import pytest

from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.plan_rows import GRAPH
from tests.service.plans import makers
from tests.service.plans.makers import PROOF, SCRIPT
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
from tilewise.service.db import models, writing
from tilewise.service.errors import LeaseLostError, ServiceError
from tilewise.service.jobs import model_jobs
from tilewise.service.jobs.plans import CHOOSING, PROVING, Made, PackOutcome
from tilewise.service.runs import offers
from tilewise.service.runs.http import HttpKeeper, HttpPlanKeeper, RunCalls
from tilewise.service.runs.wire.assignments import MadeWire
from tilewise.service.workers.planning import run_claimed

DRIVER, WORKER, OWNER = "driver-host:1:1", "tcp://10.0.0.2:4000", "worker-host:7:7"


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


@pytest.fixture
def calls(client, sessions, machine):
    """Offers the plan that is ready, and gives what its worker calls the service with."""

    def make():
        with writing(sessions) as session:
            offer = offers.make(session, WORKER, machine.targets, TOOLCHAIN, DRIVER)
        assert offer.kind == "model"
        transport = client._transport
        return RunCalls(
            "http://testserver", offer.job_id, offer.token, transport=transport, patience_s=1.0
        )

    return make


@pytest.fixture
def keeper(calls, ready):
    return HttpPlanKeeper(calls(), OWNER, TOOLCHAIN)


def test_a_worker_makes_and_stores_a_plan(keeper, ready, look):
    order, module = keeper.order()
    assert (order.plan_id, list(order.schedules), module) == (ready, [PROBLEM], b"module {}")

    def make(order, module, note):
        note(CHOOSING, None)
        assert (look(ready).state, look(ready).phase) == ("running", CHOOSING)
        note(PROVING, PLAN)
        assert (look(ready).phase, look(ready).plan) == (PROVING, PLAN)
        return from_json(Made, MADE)

    run_claimed(keeper, make)
    row = look(ready)
    assert (row.state, row.plan, row.script, row.source) == ("done", PLAN, SCRIPT, None)
    assert row.proof == PROOF | {"by": "worker-host"}
    assert keeper.done(from_json(Made, MADE)), "the first answer may have been lost"


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
        forged("plan", "extra", value=1),
        forged("plan", "tensors", value=[]),
        forged("plan", "nodes", 0, "op", value="linalg.conv"),
        forged("plan", "nodes", 0, "problem", value="matmul:m=8,n=8,k=8,dtype=f32"),
        forged("plan", "nodes", 0, "schedule", value=TIMED | {"steps": STEPS * 2}),
        forged("plan", "totals", "chosen_us", value=float("nan")),
        forged("packed", "proof", value=None),
        forged("packed", "proof", "max_error", value=9.0),
        forged("packed", "script", value=5),
    ],
)
def test_a_plan_of_another_order_is_refused(keeper, ready, look, made):
    with pytest.raises(ServiceError, match="refuses job"):
        keeper._ended("/made", MadeWire(epoch=keeper.epoch, made=made))
    if "schema" in made["plan"] and made["packed"] == MADE["packed"]:
        with pytest.raises(ServiceError, match="refuses job"):
            keeper.note(PROVING, made["plan"])
    row = look(ready)
    assert (row.state, row.plan, row.script) == ("running", None, None)


def test_what_cannot_be_planned_fails(keeper, ready, look):
    run_claimed(keeper, makers.refuse)
    row = look(ready)
    assert (row.state, row.error) == ("failed", "no layer has a stored schedule")


def test_a_plan_that_is_interrupted_or_cancelled_is_let_go(keeper, calls, ready, look, sessions):
    def interrupt(*_order):
        raise SystemExit

    with pytest.raises(SystemExit):
        run_claimed(keeper, interrupt)
    assert (look(ready).state, look(ready).crashes) == ("queued", 0)
    with writing(sessions) as session:
        session.query(models.Offer).delete()
    again = calls()
    keeper = HttpPlanKeeper(again, OWNER, TOOLCHAIN)
    assert again.goes_on()
    with writing(sessions) as session:
        model_jobs.cancel_plan(session, ready)
    assert again.goes_on() is False
    assert keeper.done(from_json(Made, MADE)) is False
    assert look(ready).state == "cancelled"


def test_a_search_is_not_begun_as_a_plan_nor_a_plan_as_a_search(calls, ready, submit):
    with pytest.raises(LeaseLostError, match="job"):
        HttpKeeper(calls(), OWNER, TOOLCHAIN, ready)
