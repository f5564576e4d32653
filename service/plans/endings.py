"""How a run stores what it has come to: its phase, the chosen plan, its end, each under its lease.

What is served of a plan carries a digest, so that a row that was changed is refused.
"""

import logging

from sqlalchemy.orm import Session

from tilewise.service.db import models
from tilewise.service.db.session import Sessions, writing
from tilewise.service.errors import PASSING, LeaseLostError
from tilewise.service.plans import lease
from tilewise.service.plans.digests import digest
from tilewise.service.plans.lease import PlanLease
from tilewise.service.plans.making import Made
from tilewise.service.plans.rows import Json
from tilewise.service.results.integrity import refusal

PLAN_AGAIN = "ask for the plan again (POST /v1/plans)"

log = logging.getLogger(__name__)


def note(sessions: Sessions, held: PlanLease, phase: str, plan: Json | None) -> None:
    """Store what a run does now, and the plan once it is chosen.

    A database that is away for now is no reason to end the run.

    Raises:
        LeaseLostError: another run has the plan.
    """
    values: Json = {"phase": phase}
    try:
        with writing(sessions) as session:
            if plan is not None:
                row = session.get_one(models.Plan, held.plan_id)
                chosen = digest(row, plan, None)
                values |= {"plan": plan, "totals": plan["totals"], "digest": chosen}
            is_ours = lease.note(session, held, **values)
    except PASSING as error:
        log.warning("%s: phase %s is not stored: %s", held.name, phase, error)
        return
    if not is_ours:
        raise LeaseLostError(f"{held.name} was cancelled, or taken over by another process")


def done(session: Session, held: PlanLease, made: Made) -> bool:
    """End a plan with what was made; False when it was cancelled or taken over meanwhile."""
    row = session.get_one(models.Plan, held.plan_id)
    packed = made.packed
    return lease.end(
        session,
        held,
        state="done",
        plan=made.plan,
        totals=made.plan["totals"],
        script=packed.script,
        proof=packed.proof,
        script_error=packed.error,
        error=None,
        digest=digest(row, made.plan, packed.script),
    )


def failed(session: Session, held: PlanLease, message: str) -> bool:
    """End a plan without a result; False when it was cancelled or taken over meanwhile."""
    return lease.end(session, held, state="failed", error=message)


def check(row: models.Plan) -> None:
    """Raise unless the plan and the script of a row that is done are those that were stored.

    Raises:
        TamperedError: they are not.
    """
    if row.digest != digest(row, row.plan, row.script):
        raise refusal("plans", row.id, "the plan or its script", PLAN_AGAIN)
