"""News of plans as the bytes of server-sent events: each problem that is tuned, phases, the end."""

from sqlalchemy.orm import Session

from service.api.events.encoding import Told, encoded
from service.api.schemas import PhaseView, PlanHeadView, PlanPartView
from service.db import models
from service.jobs.queue import ENDED
from service.plans import rows
from service.plans.documents import head_json, part_json
from service.plans.parts import TUNING, Part, Parts, endings, parts_of, phase_of


def read_plan_news(session: Session, plan_id: int, after: int | None) -> Told:
    """What a plan has to tell after a problem, by the number of its ending.

    Args:
        session: an open session.
        plan_id: the plan.
        after: number of the problem; None tells no problems, and where they end now.

    Raises:
        NotFoundError, DamagedError: there is no such plan, or its row cannot be read.
    """
    # Read first: what ends between the queries is told with the next news.
    plan = rows.get(session, plan_id)
    parts = parts_of(session, plan)
    ended = list(endings(parts))
    known = len(ended) - 1 if after is None else after
    is_over = plan.state in ENDED
    return Told(
        last=max(known, len(ended) - 1),
        trials=tuple((i, _part(i, part, parts)) for i, part in ended if i > known),
        phase=_phase(plan, parts, len(ended)),
        end=_end(session, plan) if is_over else None,
        is_settled=True,
    )


def _part(number: int, part: Part, parts: Parts) -> bytes:
    told = PlanPartView(**part_json(part), done=number + 1, total=len(parts.every))
    return encoded("part", told.model_dump_json(), number)


def _phase(plan: models.Plan, parts: Parts, done: int) -> bytes | None:
    name = phase_of(plan, parts)
    if name is None:
        return None
    total = len(parts.every) if name == TUNING else 0
    view = PhaseView(name=name, done=done if total else 0, total=total)
    return encoded("phase", view.model_dump_json())


def _end(session: Session, plan: models.Plan) -> bytes:
    return encoded("end", PlanHeadView(**head_json(session, plan)).model_dump_json())
