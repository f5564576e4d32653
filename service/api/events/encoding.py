"""News of jobs as the bytes of server-sent events."""

from dataclasses import dataclass

from fastapi.sse import format_sse_event
from sqlalchemy.orm import Session

from tilewise.service.api.documents import job_json, phase_json, trial_json
from tilewise.service.api.schemas import JobView, PhaseView, TrialView
from tilewise.service.jobs import events
from tilewise.service.results.readable import listed

PAGE = 200  # trials that are read at once
RETRY_MS = 1000

RETRY = format_sse_event(retry=RETRY_MS)
HEARTBEAT = format_sse_event(comment="heartbeat")


@dataclass(frozen=True)
class Told:
    """What a job has to tell, encoded.

    Attributes:
        last: number of the last trial that was looked at, whether or not it could be shown.
        trials: numbers and events.
        phase: None before the first run.
        end: None while the job goes on, or has more trials to tell of.
        is_settled: whether only a change of the database can bring more.
    """

    last: int
    trials: tuple[tuple[int, bytes], ...]
    phase: bytes | None
    end: bytes | None
    is_settled: bool


def read_news(session: Session, job_id: int, after: int | None) -> Told:
    """What a job has to tell after a trial.

    Args:
        session: an open session.
        job_id: the job.
        after: number of the trial; None tells no trials, and where they end now.

    Raises:
        NotFoundError, DamagedError: there is no such job, or its row cannot be read.
    """
    known = events.last_number(session, job_id) if after is None else after
    found = events.news(session, job_id, known, PAGE)
    phase = phase_json(session, found.job)
    return Told(
        last=found.trials[-1].number if found.trials else known,
        trials=_trials(found),
        phase=None if phase is None else encoded("phase", PhaseView(**phase).model_dump_json()),
        end=_end(session, found) if found.is_over else None,
        is_settled=found.is_over or (not found.is_full and found.job.state != "cancelled"),
    )


def _trials(found: events.News) -> tuple[tuple[int, bytes], ...]:
    shown = listed("trials", found.trials, trial_json, TrialView)["trials"]
    return tuple(
        (one["number"], encoded("trial", TrialView(**one).model_dump_json(), one["number"]))
        for one in shown
    )


def _end(session: Session, found: events.News) -> bytes:
    return encoded("end", JobView(**job_json(session, found.job)).model_dump_json())


def encoded(name: str, data: str, number: int | None = None) -> bytes:
    """An event with its data, and with a number that a client may go on from."""
    shown = None if number is None else str(number)
    return format_sse_event(event=name, data_str=data, id=shown)
