"""Jobs and trials of an archive, taken into a store that may have some of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from tilewise.kernels.problem import parse_problem
from tilewise.search.records import TuneRequest
from tilewise.service.archive.lines import JobLine, TrialLine
from tilewise.service.archive.merging.merged import LocalJob, Merged, Numbers
from tilewise.service.db import models
from tilewise.service.jobs import queue
from tilewise.service.results.stored import in_parts

ACTIVE = ("queued", "running")
UNFINISHED = (
    "the archive was written while it was {}; ask for the problem again, and the search goes on "
    "from its trials"
)
# Of two stores that have a job, one may have been copied before it ended.
_RANK = {"running": 0, "queued": 0, "cancelled": 1, "failed": 2, "done": 3}
_STAYS = ("job", "problem", "toolchain", "target", "cache", "seed", "created_at")


def add_job(
    session: Session, line: JobLine, numbers: Numbers, merged: Merged, written_at: datetime
) -> None:
    """Take in a job; one that had not ended is called off here, since its own store may go on.

    Args:
        session: a transaction that writes.
        line: the job.
        numbers: of the rows that it refers to; its own is added.
        merged: counts it.
        written_at: the moment of the archive.
    """
    row = _find(session, line, numbers)
    is_new, is_active = row is None, row is not None and row.state in ACTIVE
    ended = _ended(line, written_at)
    if row is None:
        row = models.Job(**ended, **numbers.work(line), seed=line.seed, created_at=line.created_at)
        session.add(row)
        session.flush()
    elif not is_active and _RANK[line.state] > _RANK[row.state]:
        for name, value in ended.items():
            setattr(row, name, value)
    if line.state in ACTIVE:
        merged.unfinished += 1
        numbers.unfinished.append(line)
    merged.count("jobs", is_new=is_new)
    numbers.jobs[line.job] = LocalJob(row.id, is_active)


def _find(session: Session, line: JobLine, numbers: Numbers) -> models.Job | None:
    """The job of this name, by what the name is made of."""
    named = {**numbers.work(line), "seed": line.seed, "created_at": line.created_at}
    query = select(models.Job).filter_by(**named)
    return session.scalar(query.order_by(models.Job.id).limit(1))


def _ended(line: JobLine, written_at: datetime) -> dict[str, Any]:
    """The columns of a job that has ended, as it has here."""
    values = line.model_dump(exclude=set(_STAYS))
    if line.state in ACTIVE:
        error = UNFINISHED.format(line.state)
        values |= {"state": "cancelled", "complete": False, "error": error}
        values["finished_at"] = written_at
    return values


def add_trials(
    session: Session, lines: Sequence[TrialLine], numbers: Numbers, merged: Merged
) -> None:
    """Take in trials.

    A trial is known where the job has one of its schedule that ended at the same moment. One
    whose number another trial has gets the next number that is free: the job was continued in
    two stores.

    Args:
        session: a transaction that writes.
        lines: the trials, job by job.
        numbers: of the jobs.
        merged: counts them.
    """
    stored = _stored(session, {numbers.jobs[line.job].id for line in lines})
    waiting: list[dict[str, Any]] = []
    for line in lines:
        job = numbers.jobs[line.job]
        has = stored[job.id]
        is_new = (line.created_at, line.hash) not in has.trials
        if is_new and job.is_active:
            merged.postponed += 1
            continue
        merged.count("trials", is_new=is_new)
        if is_new:
            number = has.take(line)
            values = line.model_dump(exclude={"job", "number"})
            waiting.append({**values, "job_id": job.id, "number": number})
    if waiting:
        session.execute(insert(models.Trial), waiting)


@dataclass
class _Stored:
    """The trials that a job has here: each by its moment and its schedule, and their numbers."""

    trials: set[tuple[datetime, str]] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)

    def take(self, line: TrialLine) -> int:
        """Add a trial; its number."""
        number = line.number if line.number not in self.numbers else max(self.numbers) + 1
        self.trials.add((line.created_at, line.hash))
        self.numbers.add(number)
        return number


def _stored(session: Session, jobs: set[int]) -> dict[int, _Stored]:
    found: dict[int, _Stored] = {job: _Stored() for job in jobs}
    trial = models.Trial
    for some in in_parts(jobs):
        query = select(trial.job_id, trial.number, trial.created_at, trial.hash)
        for job, number, moment, name in session.execute(query.where(trial.job_id.in_(some))):
            found[job].trials.add((moment, name))
            found[job].numbers.add(number)
    return found


def resume(session: Session, numbers: Numbers) -> int:
    """Ask anew for the searches that had not ended; how many wait now.

    Each begins with the trials of the one that it stands for, and is answered by what is stored
    where that is as good.
    """
    queued = 0
    for line in numbers.unfinished:
        problem, request = parse_problem(line.problem), TuneRequest.of(line)
        made = queue.create_or_join(session, problem, line.target, request, line.toolchain)
        session.flush()
        queued += made.job is not None
    return queued
