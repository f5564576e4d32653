"""Plans in a database, as a worker leaves them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.dashboard.made_plans import attention, block
from tilewise.search.networks.plan import Plan
from tilewise.search.records import TuneRequest
from tilewise.service.db import Sessions, models, writing
from tilewise.service.db.rows import toolchain_row
from tilewise.service.jobs.plans import digest
from tilewise.service.jobs.queue import Submitter, new_job

PROOF = {"max_error": 1e-6, "tolerance": 1e-5, "mlir": "iree-base-compiler 3.13.0",
         "packs": 0, "unpacks": 1, "reshapes": 1, "weights": 3}  # fmt: skip


def store_plan(
    sessions: Sessions, plan: Plan | None, toolchain: str = TOOLCHAIN, **columns: Any
) -> int:
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
        toolchain_id = toolchain_row(session, toolchain).id
        job = new_job(
            TuneRequest(trials=8), values["target"], toolchain_id, Submitter(), kind="model"
        )
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
