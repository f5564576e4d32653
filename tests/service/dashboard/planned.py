"""Plans made by hand, small enough to count by eye, and plans in a database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.kernels.mlir.frontend.graph import Arrangement, Occurrence
from tilewise.search.networks import plan as plans
from tilewise.search.networks.costs import Timed
from tilewise.search.networks.plan import Plan, PlannedNode, PlannedTensor, PlannedUse
from tilewise.search.networks.variants import TensorLayout, plain
from tilewise.search.records import TuneRequest
from tilewise.service.db import Sessions, models, writing
from tilewise.service.db.rows import toolchain_row
from tilewise.service.jobs.plans import digest
from tilewise.service.jobs.queue import Submitter, new_job

TARGET = "cpu:znver5,threads=1"
SHAPE = (1, 8, 10, 10)
PLAIN, LAST = plain(SHAPE), TensorLayout((2, 3, 1))
HALO = TensorLayout((2, 3, 1), 1, (2, 3))
CONV = "conv2d:n=1,h=10,w=10,ci=8,co=8,kh=3,kw=3,pad=1,dtype=f32,bias,weights=constant"
WAY = Arrangement((0, 1, 2, 3), SHAPE, False)
PROOF = {"max_error": 1e-6, "tolerance": 1e-5, "mlir": "iree-base-compiler 3.13.0",
         "packs": 0, "unpacks": 1, "reshapes": 1, "weights": 3}  # fmt: skip


def use(tensor: int, layout: TensorLayout = PLAIN, role: str = "A") -> PlannedUse:
    """A tensor of `SHAPE` as a node has it."""
    return PlannedUse(tensor, SHAPE, role, layout)


def layer(reads, made, time_us, algorithm="direct", fused=("pad", "bias")) -> PlannedNode:
    """A convolution with a schedule."""
    op = "linalg.conv_2d_nchw_fchw"
    where = f"@main 5:3 {op}"
    found = Occurrence(CONV, op, where, WAY, WAY, WAY, False, fused)
    timed = Timed(algorithm, "0123456789ab", (), time_us)
    return PlannedNode(
        "contraction", op, where, reads, (replace(made, role="C"),), found, 1, CONV, timed, ""
    )


def other(reads: tuple[PlannedUse, ...], made: PlannedUse, reason: str = "") -> PlannedNode:
    """An op that nobody tunes."""
    op, unknown = "linalg.softmax", (None,) * 4
    return PlannedNode("other", op, f"@main 9:3 {op}", reads, (made,), *unknown, reason)


def tensor(layout=PLAIN, *, given=False, result=False) -> PlannedTensor:
    """A tensor of `SHAPE`."""
    return PlannedTensor(SHAPE, "f32", given, result, layout)


def block(model: str = "block.mlir") -> Plan:
    """An op that nobody times, a copy that two layers read, a halo, a residual, a last copy."""
    nodes = (
        other((use(0, role="whole"),), use(1, role="whole"), "is no product"),
        layer((use(1, LAST),), use(2, LAST), 30.0),
        layer((use(2, HALO),), use(3, LAST), 50.0, "winograd F4", ("pad", "bias", "relu")),
        layer((use(3, LAST), use(1, LAST, "C")), use(4, LAST), 10.0, fused=("bias", "addition")),
    )
    tensors = (tensor(given=True), tensor(), *[tensor(LAST)] * 2, tensor(LAST, result=True))
    copied = ((1, LAST, 4.0), (2, HALO, 2.0), (4, PLAIN, 4.0))
    copies = tuple(plans.PlannedConversion(*one) for one in copied)
    totals = plans.Totals(100.0, 120.0, 105.0)
    return Plan(plans.SCHEMA, model, TARGET, "hot", True, nodes, tensors, copies, totals)


def attention() -> Plan:
    """Three layers that read one tensor, and an op that reads all three: a wide graph."""
    layers = tuple(layer((use(0),), use(i), 10.0 * i) for i in (1, 2, 3))
    nodes = (*layers, other((use(1), use(2), use(3), use(0)), use(4)))
    tensors = (tensor(given=True), tensor(), tensor(), tensor(), tensor(result=True))
    totals = plans.Totals(60.0, 60.0, 60.0)
    return Plan(plans.SCHEMA, "wide.mlir", TARGET, "hot", True, nodes, tensors, (), totals)


def store_plan(sessions: Sessions, plan: Plan | None, **columns: Any) -> int:
    """Store a plan that is done, unless columns say otherwise; its number."""
    problems = [] if plan is None else [
        {"problem": node.problem, "count": 1, "where": [node.where], "job": None}
        for node in plan.nodes if node.problem is not None
    ]  # fmt: skip
    unique = list({one["problem"]: one for one in problems}.values())
    told: dict[str, Any] = {} if plan is None else {
        "name": plan.model, "target": plan.target, "cache": plan.cache, "plan": plan.to_json(),
        "totals": plan.to_json()["totals"], "proof": PROOF, "script": "// a script",
    }  # fmt: skip
    now = datetime.now(UTC)
    values = {
        "sha256": "0" * 64, "name": "model.mlir", "target": "cpu:znver5,threads=1", "cache": "hot",
        "layouts": "all", "problems": unique, "variants": [], "skipped": [], "state": "done",
        "created_at": now - timedelta(minutes=9), "finished_at": now, **told, **columns,
    }  # fmt: skip
    of_job = models.Job.__table__.columns.keys()
    with writing(sessions) as session:
        toolchain_id, request = toolchain_row(session, TOOLCHAIN).id, TuneRequest(trials=8)
        job = new_job(request, values["target"], toolchain_id, Submitter(), kind="model")
        made = models.Plan(job=job)
        for name, value in values.items():
            setattr(job if name in of_job else made, name, value)
        session.add(made)
        session.flush()
        made.digest = digest(made, made.plan, made.script)
        return made.id


def store_plans(sessions: Sessions) -> None:
    """A small plan, a wide one, one that failed, and one that waits; the numbers 1 to 4."""
    store_plan(sessions, block())
    store_plan(sessions, attention())
    store_plan(sessions, None, state="failed", error="a worker has died three times at this plan")
    tuned = [{"problem": PROBLEM, "count": 2, "where": ["@main 9:3"], "job": 1}]
    store_plan(sessions, None, state="queued", finished_at=None, problems=tuned)
