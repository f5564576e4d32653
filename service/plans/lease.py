"""Leases of plans (`tilewise.service.leases`): one process makes a plan once its jobs have ended.

What is the same for every leased table is in `PLANS`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.schema.base import PlanState
from tilewise.service.db.base import now
from tilewise.service.db.models import Plan
from tilewise.service.errors import LeaseLostError
from tilewise.service.leases import giving_up
from tilewise.service.leases.table import LEASE, LeasedTable
from tilewise.service.plans.parts import is_tuned
from tilewise.service.plans.rows import fault_of


@dataclass(frozen=True)
class PlanLease:
    """One run that makes a plan.

    Attributes:
        plan_id: the plan.
        owner: the process that makes it, from `tilewise.service.host.process_identity.me`.
        epoch: the number of the run among the plan's runs.
    """

    plan_id: int
    owner: str
    epoch: int

    @property
    def number(self) -> int:
        """The plan."""
        return self.plan_id

    @property
    def name(self) -> str:
        """What is made, for the log."""
        return f"plan {self.plan_id}"

    def beat(self, session: Session) -> None:
        """As `beat` does."""
        beat(session, self)

    def holds(self, session: Session) -> bool:
        """Whether the plan is being made, and this is its run."""
        return holds(session, self)

    def release(self, session: Session) -> bool:
        """Let the plan wait again; False when this was not its run."""
        return release(session, self)

    def crash(self, session: Session, why: str) -> None:
        """Count the death of a worker."""
        crash(session, self, why)


def may_claim(
    session: Session, targets: Sequence[str], toolchain: str, *, but: Collection[int] = ()
) -> bool:
    """Whether `claim` may find a plan; asked before a transaction that writes."""
    found = session.scalars(PLANS.waiting(session, targets, toolchain, but=but))
    return any(fault_of(plan) or is_tuned(session, plan) for plan in found)


def claim(
    session: Session,
    owner: str,
    targets: Sequence[str],
    toolchain: str,
    *,
    but: Collection[int] = (),
    spares_late: bool = False,
    worker: str | None = None,
) -> PlanLease | None:
    """Take the oldest plan whose jobs have ended and that nobody makes.

    A plan whose row is damaged fails with a message that says so.

    Args:
        session: a transaction that writes.
        owner: who takes it, from `tilewise.service.host.process_identity.me`.
        targets: the canonical targets that this machine serves.
        toolchain: `tilewise.kernels.system.toolchain.identity()`.
        but: plans that are not taken, such as those that the owner has already.
        spares_late: whether those whose owner is silent are left to it, as for `GRACE` after an
            outage of the database.
        worker: the process of a cluster that is to make it, as its facts name it.
    """
    for plan in PLANS.free(session, targets, toolchain, but=but, spares_late=spares_late):
        if PLANS.fail_damaged(session, plan) or not is_tuned(session, plan):
            continue
        if PLANS.take(session, plan, owner, worker=worker):
            return PlanLease(plan.id, owner, plan.epoch)
    return None


def makers(session: Session) -> dict[int, str]:
    """The process that makes each plan now: a worker of a cluster, whichever driver has given it
    the plan, or a service.
    """
    query = select(Plan.id, Plan.worker, Plan.owner).where(
        Plan.state == "running", Plan.heartbeat_at > now() - LEASE
    )
    named = ((row.id, row.worker or row.owner) for row in session.execute(query))
    return {number: process for number, process in named if isinstance(process, str)}


def beat(session: Session, held: PlanLease) -> None:
    """Show that the run goes on.

    Raises:
        LeaseLostError: the plan was cancelled, or another run has it.
    """
    if not note(session, held):
        raise LeaseLostError(f"{held.name} was cancelled, or taken over by another process")


def note(session: Session, held: PlanLease, **values: Any) -> bool:
    """Store what the run has come to so far; False where it is not the plan's any more."""
    statement = PLANS.of_run(held).where(Plan.state == "running")
    return PLANS.changed(session, statement.values(heartbeat_at=now(), **values))


def note_unserved(session: Session, served: Collection[tuple[str, str]], most: timedelta) -> int:
    """As `giving_up.note_unserved` does; a plan whose jobs go on waits for them alone."""
    return giving_up.note_unserved(
        PLANS, session, served, most, lambda plan: is_tuned(session, plan)
    )


def call_off(plan: Plan) -> None:
    """Cancel a plan, whoever makes it, in the transaction that has read it."""
    _end_outside(plan, "cancelled", None)


def _fail(plan: Plan, error: str) -> None:
    """Fail a plan from outside its run, in the transaction that has read it."""
    _end_outside(plan, "failed", error)


def _end_outside(plan: Plan, state: PlanState, error: str | None) -> None:
    plan.owner = plan.worker = plan.heartbeat_at = plan.unserved_since = None
    plan.phase = None
    _drop(plan)
    plan.state, plan.error, plan.finished_at = state, error, now()


def _left(_plan: Plan, state: str) -> dict[str, Any]:
    """The columns of a plan that its run leaves in a state."""
    left = {"phase": None, "worker": None}
    if state == "queued":
        return left
    return {**left, "finished_at": now()}


def _drop(plan: Plan) -> None:
    """Forget the source of a plan that has ended."""
    plan.source = None


PLANS = LeasedTable(Plan, "plan", fault_of=fault_of, fail=_fail, left=_left, drop=_drop)

end, release, crash = PLANS.end, PLANS.release, PLANS.crash
holds, has_left, fail_damaged = PLANS.holds, PLANS.has_left, PLANS.fail_damaged
retire = partial(giving_up.retire, PLANS)
