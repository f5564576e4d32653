"""What pages show of the database, as plain values."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from math import isfinite
from typing import Any, Literal

from sqlalchemy import Row, Select, func, select
from sqlalchemy.orm import Session

from tilewise.kernels.errors import KernelsError, ScheduleError
from tilewise.kernels.mlir.tuning_spec.config import read_steps
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import parse_target
from tilewise.kernels.target.machine import facts_text
from tilewise.search.final_benchmark.quality import Quality
from tilewise.search.records import TrialState
from tilewise.service.api.documents import job_json, moment
from tilewise.service.db import models
from tilewise.service.db.base import Garbled, is_sound
from tilewise.service.errors import NotFoundError
from tilewise.service.host.process_identity import Owner
from tilewise.service.jobs import model_jobs, queue, registry
from tilewise.service.results import history

LAST = "l3"


def roof(
    problem: str, target: str, cache: str, peak: float, machine: tuple[Mapping[str, Any], Any]
) -> float:
    """Return the lower of the peak and of what the memory feeds, in GFLOP/s.

    Memory counts with cold caches, or for operands larger than the last cache. Its bandwidth is
    known of one thread alone. `machine` holds bytes of its caches by level, and its bandwidth in
    GB/s if measured.
    """
    caches, bandwidth = machine
    if not isinstance(bandwidth, int | float) or parse_target(target).threads != 1:
        return peak
    flops, size = _work(problem)
    last = caches.get(LAST)
    is_from_memory = cache == "cold" or (isinstance(last, int) and size > last)
    return min(peak, flops / size * bandwidth) if is_from_memory else peak


@lru_cache(maxsize=20_000)
def _work(problem: str) -> tuple[int, int]:
    asked = parse_problem(problem)
    return asked.flops, asked.bytes


Json = dict[str, Any]
TrialOrder = Literal["number", "speed", "state", "origin"]
Order = Literal["problem", "speed", "share", "ratio", "created"]

PAGE = 50  # rows of a table
TRIALS = 100  # rows of a table of trials
MOST_LIVE = 30  # jobs on the overview


@dataclass(frozen=True)
class Standing:
    """A stored schedule in the table of problems.

    `share` is of the roofline; `ratio` is over the fastest peer of the same rounds, if there are
    peers.
    """

    id: int
    problem: str
    key: str
    target: str
    cache: str
    toolchain: str
    gflops: float
    low: float
    high: float
    share: float
    ratio: float | None
    peer: str | None
    job: int
    created: datetime
    is_stale: bool
    quality: Quality


def standings(session: Session, present: str) -> list[Standing]:
    """Of each problem, target and cache mode the schedule that answers; newest first."""
    query = (
        select(*_COLUMNS)
        .select_from(models.Schedule)
        .join(models.Problem, models.Problem.id == models.Schedule.problem_id)
        .join(models.Toolchain, models.Toolchain.id == models.Schedule.toolchain_id)
        .join(models.Machine, models.Machine.id == models.Schedule.machine_id)
        .order_by(models.Schedule.created_at.desc(), models.Schedule.id.desc())
    )
    found: dict[tuple[str, str, str], Standing] = {}
    for row in session.execute(query):
        if _is_garbled(row):  # the page of its problem says how
            continue
        one = _standing(row, present)
        place = (one.key, one.target, one.cache)
        if place not in found or (found[place].is_stale and not one.is_stale):
            found[place] = one
    return list(found.values())


_COLUMNS = (
    models.Schedule.id, models.Problem.canonical, models.Problem.key, models.Schedule.target,
    models.Schedule.cache, models.Toolchain.identity, models.Schedule.gflops,
    models.Schedule.low, models.Schedule.high, models.Schedule.peak_gflops,
    models.Schedule.time_us, models.Schedule.measured,
    models.Schedule.peers, models.Schedule.job_id, models.Schedule.created_at,
    models.Machine.caches, models.Machine.bandwidth_gbs,
)  # fmt: skip


def _standing(row: Any, present: str) -> Standing:
    peers = {
        name: peer["gflops"]
        for name, peer in (row.peers or {}).items()
        if isinstance(peer, dict) and isinstance(peer.get("gflops"), int | float)
    }
    limit = _roof(row)
    peer = max(peers, key=lambda name: peers[name], default=None)
    return Standing(
        id=row.id,
        problem=row.canonical,
        key=row.key,
        target=row.target,
        cache=row.cache,
        toolchain=row.identity,
        gflops=row.gflops,
        low=row.low,
        high=row.high,
        share=row.gflops / limit if limit else 0.0,
        ratio=row.gflops / peers[peer] if peer and peers[peer] else None,
        peer=peer,
        job=row.job_id,
        created=row.created_at,
        is_stale=row.identity != present,
        quality=history.quality(row),
    )


def _roof(row: Any) -> float:
    machine = (row.caches or {}, row.bandwidth_gbs)
    try:
        return roof(row.canonical, row.target, row.cache, row.peak_gflops, machine)
    except KernelsError:  # the page of its problem says what is wrong
        return float(row.peak_gflops)


def ordered(rows: Sequence[Standing], order: Order, contains: str) -> list[Standing]:
    """The rows that contain a text, worst first where that is a question of speed."""
    words = contains.lower().split()
    kept = [
        row for row in rows if all(word in f"{row.problem} {row.target}".lower() for word in words)
    ]
    if order == "created":
        return kept
    if order == "ratio":
        return sorted(kept, key=lambda row: (row.ratio is None, row.ratio or 0.0))
    if order == "problem":
        return sorted(kept, key=lambda row: (row.problem, row.target))
    return sorted(kept, key=lambda row: row.share if order == "share" else row.gflops)


def live(session: Session) -> Json:
    """What goes on now: jobs that run or wait, and machines with what they do."""
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
    """The canonical string of a stored problem; NotFoundError where there is none."""
    found = session.scalar(select(models.Problem.canonical).where(models.Problem.key == key))
    if found is None:
        raise NotFoundError(f"no problem with the key {key} is stored")
    return found


def rows_of(session: Session, key: str) -> list[models.Schedule]:
    """All stored schedules of a problem, newest first."""
    query = (
        select(models.Schedule)
        .join(models.Schedule.problem)
        .where(models.Problem.key == key)
        .order_by(models.Schedule.created_at.desc(), models.Schedule.id.desc())
    )
    return list(session.scalars(query))


def schedule_row(session: Session, number: int) -> models.Schedule:
    """A stored schedule by its number; NotFoundError where there is none."""
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
    """Return a schedule by its number, or a past result by `past-NUMBER`; raise NotFoundError."""
    number = name.removeprefix(PAST)
    is_number = number.isascii() and number.isdecimal() and len(number) < _DIGITS
    if is_number and name == number:
        return schedule_row(session, int(number))
    row = session.get(models.PastSchedule, int(number)) if is_number else None
    if row is None:
        raise NotFoundError(f"there is no schedule {quoted(name)}")
    return row


_DIGITS = 10


def steps_text(steps: list[Json]) -> list[str]:
    """A schedule's steps, a line each; as JSON where this version does not know them."""
    try:
        return str(read_steps(steps)).splitlines()
    except ScheduleError:
        return [json.dumps(step) for step in steps]


def history_rows(rows: Sequence[models.Schedule | models.PastSchedule]) -> list[Json]:
    """Speeds over time, for the plot of a problem's history."""
    return [
        {
            "when": moment(row.created_at),
            "value": round(row.gflops, 2),
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
    """The trials of a job with what plots show, without their samples, by number."""
    query = select(*_TRIAL).where(models.Trial.job_id == job_id).order_by(models.Trial.number)
    return _readable_rows(session, query)


@dataclass(frozen=True)
class TrialsAsked:
    """Which trials of a job a table shows; `order` names the first sort key."""

    order: TrialOrder = "number"
    state: TrialState | Literal[""] = ""
    page: int = 1


def trials_shown(session: Session, job_id: int, asked: TrialsAsked) -> list[Json]:
    """One page of a job's trials."""
    query = select(*_TRIAL).where(models.Trial.job_id == job_id)
    if asked.state:
        query = query.where(models.Trial.state == asked.state)
    query = query.order_by(*_TRIAL_ORDERS[asked.order], models.Trial.number)
    return _readable_rows(session, query.limit(TRIALS).offset((asked.page - 1) * TRIALS))


def origins_of(session: Session, job_id: int) -> dict[str, int]:
    """How many of a job's trials each proposer has proposed, the most first."""
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
