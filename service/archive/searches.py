"""Jobs and trials of an archive, taken into a store that may have some of them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from kernels.problem import parse_problem
from search.records import TuneRequest
from service.archive.lines import JobLine, TrialLine
from service.archive.merged import LocalJob, Merged, Numbers
from service.db import models
from service.errors import ArchiveError
from service.jobs import queue

ACTIVE = ("queued", "running")
ROWS_AT_ONCE = 500
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
    if line.job in numbers.jobs:
        raise ArchiveError("the job is in the archive twice")
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
    numbers.jobs[line.job] = LocalJob(row.id, len(numbers.jobs), is_new, is_active)


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


class Trials:
    """Takes in the trials of jobs, which come job by job.

    A trial is known where the job has one of its schedule that ended at the same moment. One
    whose number another trial has gets the next number that is free: the job was continued in
    two stores.

    Args:
        session: a transaction that writes.
        numbers: of the jobs.
        merged: counts them.
    """

    def __init__(self, session: Session, numbers: Numbers, merged: Merged) -> None:
        self._session, self._numbers, self._merged = session, numbers, merged
        self._last: tuple[int, int] = (-1, -1)
        self._job: LocalJob | None = None
        self._known: set[tuple[datetime, str]] = set()
        self._taken: set[int] = set()
        self._waiting: list[dict[str, Any]] = []

    def add(self, line: TrialLine) -> None:
        """Take in one trial.

        Raises:
            ArchiveError: it does not follow the one before.
        """
        job = self._numbers.jobs.get(line.job)
        place = (-1, -1) if job is None else (job.order, line.number)
        if job is None or place <= self._last:
            raise ArchiveError("its job is not in the archive, or it is not in the jobs' order")
        self._last = place
        if job is not self._job:
            self._begin(job)
        if (line.created_at, line.hash) in self._known:
            self._merged.count("trials", is_new=False)
        elif job.is_active:
            self._merged.postponed += 1
        else:
            self._merged.count("trials", is_new=True)
            self._keep(job, line)

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            self._session.execute(insert(models.Trial), self._waiting)
            self._waiting = []

    def _begin(self, job: LocalJob) -> None:
        self._job, self._known, self._taken = job, set(), set()
        if not job.is_new:
            for number, moment, name in self._stored(job):
                self._known.add((moment, name))
                self._taken.add(number)

    def _stored(self, job: LocalJob) -> Iterator[Any]:
        trial = models.Trial
        query = select(trial.number, trial.created_at, trial.hash).where(trial.job_id == job.id)
        yield from self._session.execute(query)

    def _keep(self, job: LocalJob, line: TrialLine) -> None:
        number = line.number
        if number in self._taken:
            number = max(self._taken) + 1
        self._known.add((line.created_at, line.hash))
        self._taken.add(number)
        values = line.model_dump(exclude={"job", "number"})
        self._waiting.append({**values, "job_id": job.id, "number": number})
        if len(self._waiting) >= ROWS_AT_ONCE:
            self.flush()


def resume(session: Session, numbers: Numbers) -> int:
    """Ask anew for the searches that had not ended; how many wait now.

    Each begins with the trials of the one that it stands for, and is answered by what is stored
    where that is as good.
    """
    queued = 0
    for line in numbers.unfinished:
        request = TuneRequest(
            trials=line.trials,
            seconds=line.seconds,
            seed=line.seed,
            sampler=line.sampler,
            peers=line.peers,
            cache=line.cache,
        )
        problem = parse_problem(line.problem)
        made = queue.create_or_join(session, problem, line.target, request, line.toolchain)
        session.flush()
        queued += made.job is not None
    return queued
