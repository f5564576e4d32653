"""Leases of plans: which process makes one, and how a plan outlives the process.

They are those of jobs (`service.jobs.lease`): a claim is one UPDATE that names the run before it,
and what a run writes is one that names the run itself. So a plan is never made twice, and a run
that lost its plan changes nothing.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Update, or_, select, update
from sqlalchemy.orm import Session

from service.db.base import now
from service.db.models import Plan, PlanState, Toolchain
from service.errors import LeaseLostError
from service.host.process_identity import is_dead
from service.jobs.lease import LEASE, MOST_CRASHES
from service.plans.parts import is_tuned
from service.plans.rows import ACTIVE, fault_of
from service.runs.unserved import unserved

_DAMAGED = "its row in the database is damaged: {}; ask again"
_ENDED: dict[str, Any] = {"module": None, "graph": None, "phase": None}
"""What a plan that has ended does not need any more."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlanLease:
    """One run that makes a plan.

    Attributes:
        plan_id: the plan.
        owner: the process that makes it, from `service.host.process_identity.me`.
        epoch: the number of the run among the plan's runs.
    """

    plan_id: int
    owner: str
    epoch: int

    @property
    def name(self) -> str:
        """What is made, for the log."""
        return f"plan {self.plan_id}"

    def beat(self, session: Session) -> None:
        """As `beat` does."""
        beat(session, self)

    def holds(self, session: Session) -> bool:
        """As `holds` does."""
        return holds(session, self)

    def release(self, session: Session) -> bool:
        """As `release` does."""
        return release(session, self)

    def crash(self, session: Session, why: str) -> None:
        """As `crash` does."""
        crash(session, self, why)


def may_claim(
    session: Session, targets: Sequence[str], toolchain: str, *, but: Collection[int] = ()
) -> bool:
    """Whether `claim` may find a plan; asked before a transaction that writes."""
    found = (plan for plan in _open_plans(session, targets, toolchain) if plan.id not in but)
    return any(fault_of(plan) or _is_ready(session, plan) for plan in found)


def claim(
    session: Session,
    owner: str,
    targets: Sequence[str],
    toolchain: str,
    *,
    but: Collection[int] = (),
    spares_late: bool = False,
) -> PlanLease | None:
    """Take the oldest plan whose jobs have ended and that nobody makes.

    A plan whose row is damaged fails with a message that says so.

    Args:
        session: a transaction that writes.
        owner: who takes it, from `service.host.process_identity.me`.
        targets: the canonical targets that this machine serves.
        toolchain: `kernels.system.toolchain.identity()`.
        but: plans that are not taken, such as those that the owner makes already.
        spares_late: whether plans whose owner is silent are left to it, as after an outage.
    """
    for plan in _open_plans(session, targets, toolchain):
        if plan.id in but or fail_damaged(session, plan):
            continue
        is_left = spares_late and plan.state == "running" and not is_dead(plan.owner or "")
        if is_left or not _is_ready(session, plan):
            continue
        taken = _take(session, plan, owner)
        if taken is not None:
            return taken
    return None


def beat(session: Session, held: PlanLease) -> None:
    """Show that the run goes on.

    Raises:
        LeaseLostError: another run has the plan.
    """
    if not _changed(session, _of_run(held).values(heartbeat_at=now())):
        raise LeaseLostError(f"{held.name} was cancelled, or taken over by another process")


def holds(session: Session, held: PlanLease) -> bool:
    """Whether the plan is being made, and this is its run."""
    query = select(Plan.id).where(
        Plan.id == held.plan_id,
        Plan.owner == held.owner,
        Plan.epoch == held.epoch,
        Plan.state == "running",
    )
    return session.scalar(query) is not None


def note(session: Session, held: PlanLease, **values: Any) -> bool:
    """Store what the run has come to so far; False where it is not the plan's any more."""
    return _changed(session, _of_run(held).values(heartbeat_at=now(), **values))


def release(session: Session, held: PlanLease) -> bool:
    """Give a plan back; False when this was not its run."""
    return _leave(session, held, state="queued", phase=None)


def crash(session: Session, held: PlanLease, why: str) -> None:
    """Count the death of a worker: the plan is made again, or fails at `MOST_CRASHES`."""
    plan = session.get(Plan, held.plan_id, populate_existing=True)
    if plan is None:
        return
    crashes = plan.crashes + 1 if isinstance(plan.crashes, int) else MOST_CRASHES
    if crashes < MOST_CRASHES:
        _leave(session, held, state="queued", phase=None, crashes=crashes)
    else:
        error = f"the worker died {crashes} times; the last time: {why}"
        end(session, held, state="failed", crashes=crashes, error=error)


def end(session: Session, held: PlanLease, *, state: str, **values: Any) -> bool:
    """End a plan as its run, and drop its module; False when it was taken over meanwhile."""
    return _leave(session, held, state=state, finished_at=now(), **_ENDED, **values)


def has_left(session: Session, held: PlanLease, state: str) -> bool:
    """Whether the plan has ended in a state, and this was its last run."""
    query = select(Plan.id).where(
        Plan.id == held.plan_id,
        Plan.epoch == held.epoch,
        Plan.state == state,
        Plan.owner.is_(None),
    )
    return session.scalar(query) is not None


def retire(session: Session, targets: Sequence[str], toolchain: str) -> int:
    """Fail the plans of other toolchains, whose schedules nothing here measures any more.

    Returns:
        How many there were.
    """
    query = (
        select(Plan)
        .join(Plan.toolchain)
        .where(Plan.target.in_(targets), Toolchain.identity != toolchain, Plan.state.in_(ACTIVE))
        .with_for_update(of=Plan)
    )
    plans = [plan for plan in session.scalars(query) if fault_of(plan) or _is_free(plan)]
    for plan in plans:
        _fail(plan, f"it was for the toolchain {plan.toolchain.identity}, which changed; ask again")
    return len(plans)


def note_unserved(session: Session, served: Collection[tuple[str, str]], most: timedelta) -> int:
    """Note since when plans whose jobs have ended wait for a worker; those that did for long fail.

    Args:
        session: a transaction that writes.
        served: each target that a live worker serves, with the toolchain of that worker.
        most: for which a plan waits so.

    Returns:
        How many failed.
    """
    waiting = or_(Plan.state == "queued", Plan.unserved_since.is_not(None))
    query = select(Plan).where(waiting, Plan.state.in_(ACTIVE))
    failed = 0
    for plan in session.scalars(query):
        if fault_of(plan) is not None:
            continue
        place = plan.target, plan.toolchain.identity
        if plan.state != "queued" or place in served or not is_tuned(session, plan):
            plan.unserved_since = None
        elif plan.unserved_since is None:
            plan.unserved_since = now()
        elif plan.unserved_since < now() - most:
            failed += 1
            _fail(plan, unserved(*place, most))
    return failed


def _open_plans(session: Session, targets: Sequence[str], toolchain: str) -> list[Plan]:
    query = (
        select(Plan)
        .join(Plan.toolchain)
        .where(Plan.target.in_(targets), Toolchain.identity == toolchain, Plan.state.in_(ACTIVE))
        .order_by(Plan.id)
    )
    return list(session.scalars(query))


def _is_ready(session: Session, plan: Plan) -> bool:
    return _is_free(plan) and is_tuned(session, plan)


def _is_free(plan: Plan) -> bool:
    """Whether a plan waits, or is known to have lost the run that it had."""
    if plan.state != "running":
        return plan.state == "queued"
    return _is_late(plan) or plan.owner is None or is_dead(plan.owner)


def _is_late(plan: Plan) -> bool:
    return plan.heartbeat_at is None or plan.heartbeat_at < now() - LEASE


def fail_damaged(session: Session, plan: Plan) -> bool:
    """Fail a plan whose row cannot be read, with a message that says so; False for a sound one."""
    broken = fault_of(plan)
    if broken is None:
        return False
    message = _DAMAGED.format(broken)
    log.error("plan %d fails: %s", plan.id, message)
    _fail(plan, message)
    session.flush()
    return True


def call_off(plan: Plan) -> None:
    """Cancel a plan, whoever makes it, in the transaction that has read it."""
    _end_outside(plan, "cancelled", None)


def _fail(plan: Plan, error: str) -> None:
    """Fail a plan from outside its run, in the transaction that has read it."""
    _end_outside(plan, "failed", error)


def _end_outside(plan: Plan, state: PlanState, error: str | None) -> None:
    plan.owner = plan.heartbeat_at = plan.phase = plan.module = plan.graph = None
    plan.unserved_since = None
    plan.state, plan.error, plan.finished_at = state, error, now()


def _take(session: Session, plan: Plan, owner: str) -> PlanLease | None:
    moment = now()
    statement = (
        update(Plan)
        .where(Plan.id == plan.id, Plan.state == plan.state, Plan.epoch == plan.epoch)
        .values(
            state="running",
            owner=owner,
            epoch=Plan.epoch + 1,
            heartbeat_at=moment,
            started_at=plan.started_at or moment,
            unserved_since=None,
        )
    )
    if plan.state == "running":  # it may have shown itself since the row was read
        statement = statement.where(Plan.heartbeat_at == plan.heartbeat_at)
    taken = _changed(session, statement)
    session.refresh(plan)
    return PlanLease(plan.id, owner, plan.epoch) if taken else None


def _leave(session: Session, held: PlanLease, **values: Any) -> bool:
    statement = _of_run(held).values(owner=None, heartbeat_at=None, **values)
    left = _changed(session, statement)
    session.expire_all()
    return left


def _of_run(held: PlanLease) -> Update:
    return update(Plan).where(
        Plan.id == held.plan_id,
        Plan.owner == held.owner,
        Plan.epoch == held.epoch,
        Plan.state == "running",
    )


def _changed(session: Session, statement: Update) -> bool:
    done = session.execute(
        statement.returning(Plan.id).execution_options(synchronize_session=False)
    )
    return done.first() is not None
