"""Database contents for pages, as plain values."""

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field
from sqlalchemy import Row, Select, func, select
from sqlalchemy.orm import Session

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.mlir.tuning_spec.config import read_steps
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import parse_target
from tilewise.kernels.target.machine import facts_text
from tilewise.schema.base import Json
from tilewise.search.records import TrialState
from tilewise.service.api.documents import job_json, moment, result_json
from tilewise.service.db import models
from tilewise.service.db.base import Garbled, is_sound
from tilewise.service.errors import NotFoundError
from tilewise.service.host.process_identity import Owner
from tilewise.service.jobs import model_jobs, queue, registry
from tilewise.service.results import integrity

TrialOrder = Literal["number", "speed", "state", "origin"]

PAGE = 50  # rows of a table
TRIALS = 100  # rows of a table of trials
MOST_LIVE = 30  # jobs on the overview
MOST_PAGES = 10_000


def live(session: Session) -> Json:
    """Return running and queued jobs, and the machines with their work."""
    running = queue.list_jobs(session, state="running", limit=MOST_LIVE)
    queued = queue.list_jobs(session, state="queued", limit=MOST_LIVE)
    jobs = [job_json(session, job) for job in (*running, *queued) if is_sound(job)]
    planning = model_jobs.planning(session)
    machines = [
        {
            "owner": worker.owner,
            "host": worker.machine.host,
            "cpu": facts_text(vars(worker.machine)),
            "targets": ", ".join(map(str, worker.targets)),
            "capacity": worker.capacity,
            "jobs": [job.id for job in running if _host(job.owner) == worker.machine.host],
            "plans": [plan for plan, one in planning.items() if _host(one) == worker.machine.host],
        }
        for worker in registry.live(session)
    ]
    return {"jobs": jobs, "machines": machines}


def _host(owner: str | None) -> str | None:
    named = None if owner is None else Owner.parse(owner)
    return None if named is None else named.host


def problem_named(session: Session, key: str) -> str:
    """Return the canonical string of a stored problem; raise NotFoundError if there is none."""
    found = session.scalar(select(models.Problem.canonical).where(models.Problem.key == key))
    if found is None:
        raise NotFoundError(f"no problem with the key {key} is stored")
    return found


Stored = TypeVar("Stored", models.Schedule, models.TunedRange)


def rows_of(session: Session, kind: type[Stored], key: str) -> list[Stored]:
    """Return all sound rows of a problem or a range, newest first."""
    query = select(kind).join(kind.problem).where(models.Problem.key == key)
    found = session.scalars(query.order_by(kind.created_at.desc(), kind.id.desc()))
    return [row for row in found if is_sound(row)]


def served(rows: Sequence[Stored], row: Stored, present: str) -> Stored:
    """Return which of a problem's rows the API returns for the target and cache mode of one."""
    same = [one for one in rows if (one.target, one.cache) == (row.target, row.cache)]
    return min(same, key=lambda one: one.toolchain.identity != present)


def schedule_row(session: Session, number: int) -> models.Schedule:
    """Return a stored schedule by its number; raise NotFoundError if there is none."""
    row = session.get(models.Schedule, number)
    if row is None:
        raise NotFoundError(f"there is no schedule {number}")
    return row


def peak_of(session: Session, job: models.Job) -> float | None:
    """Return the peak of a job's machine in GFLOP/s for its type, or None.

    A finished job has it with its result. Before that it is known of one thread alone.
    """
    of_result = select(models.Schedule.peak_gflops).where(models.Schedule.job_id == job.id)
    found = session.scalar(of_result.order_by(models.Schedule.id.desc()).limit(1))
    if isinstance(found, int | float):
        return float(found)
    threads = parse_target(job.target).threads
    if job.host is None or threads != 1 or job.kind == "range":
        return None
    machine = session.scalar(select(models.Machine).where(models.Machine.host == job.host))
    peaks = (machine.peaks if machine is not None else None) or {}
    peak = peaks.get(parse_problem(job.problem.canonical).element.name)
    return float(peak) if isinstance(peak, int | float) else None


PAST = "past-"


def result_row(session: Session, name: str) -> models.Schedule | models.PastSchedule:
    """Return a schedule by its number, or a past result by `past-NUMBER`.

    Raises NotFoundError, or TamperedError if it or its proof was changed.
    """
    number = name.removeprefix(PAST)
    is_number = number.isascii() and number.isdecimal() and len(number) < _DIGITS
    if is_number and name == number:
        found = schedule_row(session, int(number))
        result_json(session, found)  # which looks at its proof as well
        return found
    row = session.get(models.PastSchedule, int(number)) if is_number else None
    if row is None:
        raise NotFoundError(f"there is no schedule {quoted(name)}")
    integrity.check_result(row)
    return row


_DIGITS = 10


def steps_text(steps: list[Json]) -> list[str]:
    """Return a schedule's steps, one per line; as JSON if this version does not know them."""
    try:
        return str(read_steps(steps)).splitlines()
    except ScheduleError:
        return [json.dumps(step) for step in steps]


def history_rows(rows: Sequence[models.Schedule | models.PastSchedule]) -> list[Json]:
    """Return speeds over time, for the plot of a problem's history."""
    return [
        {
            "when": moment(row.created_at),
            "value": round(row.gflops, 2),
            "low": round(row.low, 2),
            "high": round(row.high, 2),
            "is_kept": getattr(row, "was_best", True),
            "series": f"{row.target}, {row.cache}",
            "toolchain": row.toolchain.identity,
        }
        for row in sorted(rows, key=lambda row: row.created_at)
    ]


_NUMBERS = ("number", "gflops", "low", "high", "time_us", "pace", "peak_gflops")
_TRIAL_ORDERS: dict[str, tuple[Any, ...]] = {
    "number": (),
    "speed": (models.Trial.gflops.desc().nulls_last(),),
    "state": (models.Trial.state,),
    "origin": (models.Trial.origin,),
}
_TRIAL = (
    models.Trial.number, models.Trial.state, models.Trial.origin, models.Trial.failure,
    models.Trial.message, models.Trial.gflops, models.Trial.low, models.Trial.high,
    models.Trial.time_us, models.Trial.pace, models.Trial.hash, models.Trial.params,
)  # fmt: skip


def trials_of(session: Session, job_id: int) -> list[Json]:
    """Return the trials of a job for plots, without samples, by number."""
    query = select(*_TRIAL).where(models.Trial.job_id == job_id).order_by(models.Trial.number)
    return _readable_rows(session, query)


class TrialsQuery(BaseModel):
    """Which trials of a job a table shows, as its URL has it; `order` names the first sort key."""

    order: TrialOrder = "number"
    state: TrialState | Literal[""] = ""
    page: int = Field(1, ge=1, le=MOST_PAGES)


def trials_shown(session: Session, job_id: int, selection: TrialsQuery) -> list[Json]:
    """Return one page of a job's trials."""
    query = select(*_TRIAL).where(models.Trial.job_id == job_id)
    if selection.state:
        query = query.where(models.Trial.state == selection.state)
    query = query.order_by(*_TRIAL_ORDERS[selection.order], models.Trial.number)
    return _readable_rows(session, query.limit(TRIALS).offset((selection.page - 1) * TRIALS))


def origins_of(session: Session, job_id: int) -> dict[str, int]:
    """Return the number of a job's trials per origin, the largest first."""
    query = (
        select(models.Trial.origin, func.count().label("many"))
        .where(models.Trial.job_id == job_id)
        .group_by(models.Trial.origin)
        .order_by(func.count().desc(), models.Trial.origin)
    )
    return {row.origin: row.many for row in session.execute(query)}


def _readable_rows(session: Session, query: Select[Any]) -> list[Json]:
    return [
        {**row._mapping, "interval": _interval(row)}
        for row in session.execute(query)
        if not _is_garbled(row)
    ]


def _interval(row: Row[Any]) -> list[float] | None:
    """Return the ends of a trial's interval; None of one sample, whose ends are the same."""
    return None if row.low is None or row.low >= row.high else [row.low, row.high]


def _is_garbled(row: Row[Any]) -> bool:
    """Whether the database has given a value that its column cannot have."""
    return any(
        isinstance(value, Garbled) or (name in _NUMBERS and not _is_number(value))
        for name, value in row._mapping.items()
    )


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and isfinite(value))
