"""Plans as JSON: what the API and its events show of them."""

from sqlalchemy.orm import Session

from tilewise.service.db import models
from tilewise.service.plans.parts import NO_PARTS, Part, Parts, parts_of, phase_of, state_of
from tilewise.service.plans.rows import Json

PATH = "/v1/plans"
LINKS = {"self": "", "script": "/script", "runner": "/runner", "events": "/events"}


def head_json(session: Session, plan: models.Plan) -> Json:
    """A plan without its problems, which are looked at only while their jobs may run."""
    parts = parts_of(session, plan) if plan.state == "queued" else NO_PARTS
    return _head(plan, parts)


def plan_json(session: Session, plan: models.Plan) -> Json:
    """A plan with its problems, and with the plan itself once it is chosen; its row has both."""
    parts = parts_of(session, plan)
    return {
        **_head(plan, parts),
        "problems": [{**part.found, **_told(part)} for part in parts.problems],
        "variants": [part_json(part) for part in parts.variants],
        "skipped": plan.skipped,
        "plan": plan.plan,
    }


def part_json(part: Part) -> Json:
    """One problem of a plan, without its places."""
    return {"problem": part.found["problem"], **_told(part)}


def _told(part: Part) -> Json:
    return {"key": part.key, "state": part.state, "job": part.job, "time_us": part.time_us}


def _head(plan: models.Plan, parts: Parts) -> Json:
    return {
        "id": plan.id,
        "state": state_of(plan, parts),
        "phase": phase_of(plan, parts),
        "name": plan.name,
        "sha256": plan.sha256,
        "target": plan.target,
        "toolchain": plan.toolchain.identity,
        "cache": plan.cache,
        "trials": plan.trials,
        "seed": plan.seed,
        "layouts": plan.layouts,
        "accuracy": plan.accuracy,
        "totals": plan.totals,
        "proof": plan.proof,
        "script_error": plan.script_error,
        "error": plan.error,
        "created": plan.created_at,
        "started": plan.started_at,
        "finished": plan.finished_at,
        "links": {
            **{name: f"{PATH}/{plan.id}{rest}" for name, rest in LINKS.items()},
            "page": f"/plans/{plan.id}",
        },
    }
