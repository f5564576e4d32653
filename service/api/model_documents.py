"""Whole models and their plans as JSON: what the API, its events and the dashboard show of them."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from tilewise.schema.base import Json
from tilewise.schema.modules import Model, PlanHead
from tilewise.service.api.documents import shown
from tilewise.service.db.models import Network, Plan
from tilewise.service.jobs.model_jobs import accuracy_of
from tilewise.service.jobs.parts import (
    NO_PARTS,
    ModelProblem,
    PlanProblems,
    parts_of,
    parts_of_model,
    phase_of,
    state_of,
    state_of_model,
)

MODELS, PLANS = "/v1/models", "/v1/plans"
LINKS = {"self": "", "script": "/script", "runner": "/runner", "events": "/events"}


def model_json(session: Session, network: Network) -> Json:
    """Return a model with the state of each of its problems."""
    parts, job = parts_of_model(session, network), network.job
    return shown(
        (network, job),
        Model,
        state=state_of_model(parts),
        toolchain=job.toolchain.identity,
        accuracy=accuracy_of(network),
        problems=[{**part.found, **_state(part)} for part in parts],
        time_us=_time_us(parts),
        links={"self": f"{MODELS}/{network.id}"},
    )


def _time_us(parts: Sequence[ModelProblem]) -> float | None:
    total = 0.0
    for part in parts:
        if part.time_us is None:
            return None
        total += int(part.found["count"]) * part.time_us
    return total


def plan_head_json(session: Session, plan: Plan) -> Json:
    """Return a plan without its problems, which are read only while their jobs may run."""
    parts = parts_of(session, plan) if plan.job.state == "queued" else NO_PARTS
    return _head(plan, parts)


def plan_json(session: Session, plan: Plan) -> Json:
    """Return a plan with its problems, and with what was chosen; the row has that loaded."""
    parts = parts_of(session, plan)
    return {
        **_head(plan, parts),
        "problems": [{**part.found, **_state(part)} for part in parts.problems],
        "variants": [part_json(part) for part in parts.variants],
        "skipped": plan.skipped,
        "plan": plan.plan,
    }


def part_json(part: ModelProblem) -> Json:
    """Return one problem of a plan, without its places."""
    return {"problem": part.found["problem"], **_state(part)}


def _state(part: ModelProblem) -> Json:
    return {"key": part.key, "state": part.state, "job": part.job, "time_us": part.time_us}


def _head(plan: Plan, parts: PlanProblems) -> Json:
    links = {name: f"{PLANS}/{plan.id}{rest}" for name, rest in LINKS.items()}
    return shown(
        (plan, plan.job),
        PlanHead,
        state=state_of(plan, parts),
        phase=phase_of(plan, parts),
        toolchain=plan.job.toolchain.identity,
        links={**links, "page": f"/plans/{plan.id}"},
    )
