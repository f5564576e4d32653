"""News of plans as the bytes of server-sent events: each problem that is tuned, phases, the end."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy.orm import Session

from tilewise.service.api.events.encoding import Told, encoded
from tilewise.service.api.events.reading import NewsReader, Read
from tilewise.service.api.schemas import PhaseView, PlanHeadView, PlanPartView
from tilewise.service.db import models
from tilewise.service.db.checked import writing
from tilewise.service.errors import DamagedError, DatabaseError, NotFoundError, ServiceError
from tilewise.service.jobs.queue import ENDED
from tilewise.service.plans import numbering, rows
from tilewise.service.plans.documents import head_json, part_json
from tilewise.service.plans.parts import TUNING, Part, Parts, parts_of, phase_of


def read_plan_news(session: Session, plan_id: int, after: int | None) -> Told:
    """What a plan has to tell after a problem, by its number among those that have ended.

    It is not settled where some that have ended have no number yet.

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
    ended = sum(part.state in ENDED for part in parts.every)
    numbered = numbering.numbered(session, plan_id, parts)
    last = max(numbered, default=-1)
    known = last if after is None else after
    has_all = len(numbered) >= ended
    return Told(
        last=max(known, last),
        trials=tuple((i, _part(i, part, parts)) for i, part in numbered.items() if i > known),
        phase=_phase(plan, parts, ended),
        end=_end(session, plan) if plan.state in ENDED and has_all else None,
        is_settled=has_all,
    )


@dataclass(frozen=True)
class PlanNewsReader(NewsReader):
    """Reads what plans have to tell, and numbers what nobody has told yet."""

    read: Read = read_plan_news

    def _every(self, jobs: Mapping[int, int | None]) -> dict[int, Told | ServiceError]:
        answers = super()._every(jobs)
        unsettled = [one for one, told in answers.items() if not _is_settled(told)]
        for plan_id in unsettled:
            # One that cannot be written now stays unsettled, and is tried again.
            passing = suppress(NotFoundError, DamagedError, DatabaseError)
            with passing, writing(self.sessions) as session:
                numbering.number(session, plan_id)
        return answers | super()._every({plan_id: jobs[plan_id] for plan_id in unsettled})


def _is_settled(told: Told | ServiceError) -> bool:
    return isinstance(told, ServiceError) or told.is_settled


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
