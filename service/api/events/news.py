"""Events of jobs and plans as bytes, read in the executor for reads."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from fastapi.sse import format_sse_event
from sqlalchemy.orm import Session

from tilewise.service.api.documents import job_json, phase_json, trial_json
from tilewise.service.api.executors import BoundedExecutor, SharedReads
from tilewise.service.api.model_documents import part_json, plan_head_json
from tilewise.service.api.schemas import JobView, PhaseView, PlanHeadView, PlanPartView, TrialView
from tilewise.service.db.checked import reading, writing
from tilewise.service.db.models import ENDED, Plan
from tilewise.service.db.session import Sessions
from tilewise.service.errors import DamagedError, DatabaseError, NotFoundError, ServiceError
from tilewise.service.jobs import events, queue
from tilewise.service.jobs.model_jobs import get_plan
from tilewise.service.jobs.parts import (
    TUNING,
    ModelProblem,
    PlanProblems,
    number_ended,
    numbered,
    parts_of,
    phase_of,
)
from tilewise.service.results.readable import listed

Source = tuple[Literal["job", "plan", "overview"], int]
"""Whose events, with its number."""

PAGE = 200  # trials that are read at once
RETRY_MS = 1000

RETRY = format_sse_event(retry=RETRY_MS)
HEARTBEAT = format_sse_event(comment="heartbeat")


@dataclass(frozen=True)
class EncodedEvent:
    """An encoded event of a job or a plan.

    `last` is the number of the last part that was read, even if it could not be shown. `end` is
    None while there may be more. `is_settled` means that only a change of the database can bring
    more.
    """

    last: int
    parts: tuple[tuple[int, bytes], ...]
    phase: bytes | None
    end: bytes | None
    is_settled: bool


@dataclass(frozen=True)
class NewsReader:
    """Read events of jobs and plans in an executor."""

    executor: BoundedExecutor
    sessions: Sessions
    _shared: SharedReads = field(default_factory=SharedReads, init=False)

    async def one(self, source: Source, after: int) -> EncodedEvent:
        """Return what happened after the event of number `after`."""
        read = partial(self.executor.run, partial(self._one, source, after))
        return await self._shared.get((source, after), read)

    async def every(
        self, known: Mapping[Source, int | None]
    ) -> dict[Source, EncodedEvent | ServiceError]:
        """Return what happened in each after an event; None for the number of its last one."""
        return await self.executor.run(partial(self._every, dict(known)))

    def _one(self, source: Source, after: int) -> EncodedEvent:
        with reading(self.sessions) as session:
            return read_news(session, source, after)

    def _every(
        self, known: Mapping[Source, int | None]
    ) -> dict[Source, EncodedEvent | ServiceError]:
        with reading(self.sessions) as session:
            answers = {source: _read(session, source, after) for source, after in known.items()}
        unsettled = [
            source
            for source, news in answers.items()
            if source[0] == "plan" and isinstance(news, EncodedEvent) and not news.is_settled
        ]
        for _, plan_id in unsettled:
            # One that cannot be written now stays unsettled, and is tried again.
            passing = suppress(NotFoundError, DamagedError, DatabaseError)
            with passing, writing(self.sessions) as session:
                number_ended(session, get_plan(session, plan_id))
        if unsettled:
            with reading(self.sessions) as session:
                answers |= {source: _read(session, source, known[source]) for source in unsettled}
        return answers


def _read(session: Session, source: Source, after: int | None) -> EncodedEvent | ServiceError:
    """What `read_news` returns; a row that is gone or damaged ends its own streams alone."""
    try:
        return read_news(session, source, after)
    except (NotFoundError, DamagedError) as error:
        return error
    except (TypeError, ValueError) as error:  # of a row that no version writes
        return DamagedError("{} {} cannot be shown: {}".format(*source, error))


def read_news(session: Session, source: Source, after: int | None) -> EncodedEvent:
    """Return what happened in a job or a plan after an event.

    `after` None requests only the number of the last one. Raises NotFoundError or
    DamagedError.
    """
    kind, number = source
    return (_news_of_job if kind == "job" else _news_of_plan)(session, number, after)


def _news_of_job(session: Session, job_id: int, after: int | None) -> EncodedEvent:
    # Read first: what ends between the queries has all of its trials in the later ones.
    job = queue.get(session, job_id)
    known = events.last_number(session, job_id) if after is None else after
    trials = queue.trials_page(session, job_id, after=known, limit=PAGE)
    is_full = len(trials) == PAGE
    is_over = not is_full and events.is_over(job)
    phase = phase_json(session, job)
    shown = listed("trials", trials, trial_json, TrialView)["trials"]
    end = JobView(**job_json(session, job)) if is_over else None
    return EncodedEvent(
        last=trials[-1].number if trials else known,
        parts=tuple(
            (one["number"], encoded("trial", TrialView(**one).model_dump_json(), one["number"]))
            for one in shown
        ),
        phase=None if phase is None else encoded("phase", PhaseView(**phase).model_dump_json()),
        end=None if end is None else encoded("end", end.model_dump_json()),
        is_settled=is_over or (not is_full and job.state != "cancelled"),
    )


def _news_of_plan(session: Session, plan_id: int, after: int | None) -> EncodedEvent:
    """Return each problem that is tuned, by its number among those that have ended.

    It is not settled where some that have ended have no number yet.
    """
    # Read first: what ends between the queries comes with the next news.
    plan = get_plan(session, plan_id)
    parts = parts_of(session, plan)
    ended = sum(part.state in ENDED for part in parts.every)
    found = numbered(session, plan_id, parts)
    last = max(found, default=-1)
    known = last if after is None else after
    has_all = len(found) >= ended
    end = None
    if plan.job.state in ENDED and has_all:
        end = encoded("end", PlanHeadView(**plan_head_json(session, plan)).model_dump_json())
    return EncodedEvent(
        last=max(known, last),
        parts=tuple((i, _ended(i, part, parts)) for i, part in found.items() if i > known),
        phase=_phase_of_plan(plan, parts, ended),
        end=end,
        is_settled=has_all,
    )


def _ended(number: int, part: ModelProblem, parts: PlanProblems) -> bytes:
    view = PlanPartView(**part_json(part), done=number + 1, total=len(parts.every))
    return encoded("part", view.model_dump_json(), number)


def _phase_of_plan(plan: Plan, parts: PlanProblems, done: int) -> bytes | None:
    name = phase_of(plan, parts)
    if name is None:
        return None
    total = len(parts.every) if name == TUNING else 0
    view = PhaseView(name=name, done=done if total else 0, total=total)
    return encoded("phase", view.model_dump_json())


def encoded(name: str, data: str, number: int | None = None) -> bytes:
    """Return an event with its data, and with a number that a client may go on from."""
    shown = None if number is None else str(number)
    return format_sse_event(event=name, data_str=data, id=shown)
