"""Numbers of the problems of a plan that have ended: the order in which its events tell them.

Whoever is to tell of one gives it the next number, and the database keeps it. So the order is the
same for all who follow, and no clock of the hosts that tune has a part in it.
"""

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from tilewise.service.db.models import PlanEnding
from tilewise.service.errors import DamagedError
from tilewise.service.jobs.queue import ENDED
from tilewise.service.plans import rows
from tilewise.service.plans.parts import Part, Parts, parts_of


def numbered(session: Session, plan_id: int, parts: Parts) -> dict[int, Part]:
    """The problems that have a number, in the order of these.

    Raises:
        DamagedError: one that has a number is none of the plan's.
    """
    every, found = parts.every, _places(session, plan_id)
    if not all(0 <= place < len(every) for place in found.values()):
        raise DamagedError(f"the numbers of plan {plan_id} name problems that it does not have")
    return {number: every[place] for number, place in found.items()}


def number(session: Session, plan_id: int) -> None:
    """Number what has ended and has no number yet; another process may do so first.

    Args:
        session: a transaction that writes.
        plan_id: the plan.

    Raises:
        NotFoundError, DamagedError: as `rows.get`.
    """
    parts = parts_of(session, rows.get(session, plan_id))
    known = _places(session, plan_id)
    ended = (place for place, part in enumerate(parts.every) if part.state in ENDED)
    new = (place for place in ended if place not in known.values())
    made = [
        PlanEnding(plan_id=plan_id, number=following, part=place)
        for following, place in enumerate(new, max(known, default=-1) + 1)
    ]
    try:
        with session.begin_nested():
            session.add_all(made)
    except IntegrityError:  # the other's numbers hold
        return


def _places(session: Session, plan_id: int) -> dict[int, int]:
    """The place among all problems of each that has a number, by that number."""
    query = (
        select(PlanEnding.number, PlanEnding.part)
        .where(PlanEnding.plan_id == plan_id)
        .order_by(PlanEnding.number)
    )
    return {row.number: row.part for row in session.execute(query)}
