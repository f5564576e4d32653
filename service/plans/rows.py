"""Rows of plans: one by its number, lists of them, and what is wrong with one."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from tilewise.schema.base import PlanState
from tilewise.service.db import models
from tilewise.service.db.base import damage
from tilewise.service.errors import DamagedError, NotFoundError

Json = dict[str, Any]
ACTIVE: tuple[PlanState, ...] = ("queued", "running")


def get(session: Session, number: int, *columns: Any, lock: bool = False) -> models.Plan:
    """A plan by its number.

    Args:
        session: an open session.
        number: the plan's.
        columns: deferred ones that are read too.
        lock: whether a server locks it against other writers.

    Raises:
        NotFoundError: there is none.
        DamagedError: its row cannot be read.
    """
    also = [undefer(column) for column in columns]
    found = session.get(
        models.Plan,
        number,
        options=also,
        populate_existing=True,
        with_for_update={"of": models.Plan} if lock else None,
    )
    if found is None:
        raise NotFoundError(f"there is no plan {number}")
    broken = fault_of(found)
    if broken is not None:
        raise DamagedError(f"the row of plan {number} in the database is damaged: {broken}")
    return found


def fault_of(plan: models.Plan) -> str | None:
    """What is wrong with a plan's row; None for a sound one."""
    broken = damage(plan)
    if broken is not None:
        return broken
    for name, found in (("problems", plan.problems), ("variants", plan.variants)):
        if not all(_is_part(one) for one in found):
            return f"{name} are not objects of a problem and a job"
    return None


def newest(
    session: Session,
    *,
    state: PlanState | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[models.Plan]:
    """Plans, newest first.

    Args:
        session: an open session.
        state: only those in it, as their rows have it.
        before: only those of a smaller number.
        limit: most of them.
    """
    query = select(models.Plan).order_by(models.Plan.id.desc()).limit(limit)
    if state is not None:
        query = query.where(models.Plan.state == state)
    if before is not None:
        query = query.where(models.Plan.id < before)
    return list(session.scalars(query))


def _is_part(found: object) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("problem"), str)
        and isinstance(found.get("job"), int | None)
        and "job" in found
    )
