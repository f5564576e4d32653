"""Jobs that time the stored winners of earlier toolchains again."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from sqlalchemy import exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from tilewise.kernels.problem import Problem, ProblemRange, parse_problem
from tilewise.search.records import RECHECKED, TuneRequest
from tilewise.service.db import models
from tilewise.service.db.base import is_sound, now
from tilewise.service.db.models import ENDED
from tilewise.service.db.rows import problem_row, same_work
from tilewise.service.db.trials import readable
from tilewise.service.errors import NotFoundError
from tilewise.service.jobs import queue
from tilewise.service.jobs.queue import Submission, Submitter
from tilewise.service.results import integrity
from tilewise.service.results.schedules import find_fresh, find_schedule
from tilewise.service.results.stored import Lookup


@dataclass(frozen=True)
class OffPeak:
    """Hours of the day in UTC, `begin` to `end`, with a budget in seconds for each day."""

    begin: int
    end: int
    seconds: float

    @classmethod
    def of(cls, hours: str, seconds: float) -> "OffPeak | None":
        """Return the hours written as `22-6`; None for an empty text."""
        if not hours:
            return None
        begin, end = map(int, hours.split("-"))
        return cls(begin, end, seconds)

    def holds(self, moment: datetime) -> bool:
        """Return whether a moment is in these hours."""
        if self.begin < self.end:
            return self.begin <= moment.hour < self.end
        return moment.hour >= self.begin or moment.hour < self.end


def request_recheck(
    session: Session,
    problem: Problem,
    target: str,
    request: TuneRequest,
    toolchain: str,
    by: Submitter | None = None,
    stored: models.Schedule | None = None,
) -> Submission:
    """Queue a job that times a `stored` winner again, by default the newest, with its runners-up.

    Its trials are those finalists, so only the final benchmark and the proofs are left. A result of
    this toolchain answers. Raises NotFoundError if nothing is stored.
    """
    lookup = Lookup(target, toolchain, request.cache)
    stored = stored or find_schedule(session, problem, lookup)
    if stored is None:
        raise NotFoundError(
            f"{problem.canonical}: no result for {target} with cache={request.cache}; tune it first"
        )
    integrity.check_result(stored)
    if stored.toolchain.identity == toolchain:
        return Submission(stored=stored)
    finalists = _finalists(session, stored)
    if not finalists:
        raise NotFoundError(f"{problem.canonical}: its trials are gone or unreadable; tune it")
    request = replace(request, trials=len(finalists))
    work = problem_row(session, problem).id, target, request, toolchain, by or Submitter()
    inherit = partial(_inherit, finalists=finalists)
    return Submission(job=queue.joined_or_queued(session, "recheck", *work, inherit))


def time_again(
    session: Session,
    problem: Problem | ProblemRange,
    target: str,
    request: TuneRequest,
    toolchain: str,
    by: Submitter | None = None,
) -> Submission:
    """Queue a job that times the finalists of a stored result again; a search if there is none.

    Without a result of this toolchain, that of an earlier one is rechecked.
    """
    lookup = Lookup(target, toolchain, request.cache)
    if isinstance(problem, Problem) and not find_fresh(session, problem, lookup):
        with suppress(NotFoundError):
            return request_recheck(session, problem, target, request, toolchain, by)
    return queue.create_or_join(session, problem, target, request, toolchain, by, again=True)


def recheck_one(
    session: Session, targets: Sequence[str], toolchain: str, off_peak: OffPeak
) -> models.Job | None:
    """Queue a job for a stale result, or return None."""
    row = to_recheck(session, targets, toolchain, off_peak)
    if row is None:
        return None
    work = parse_problem(row.problem.canonical), row.target, TuneRequest(cache=row.cache)
    return request_recheck(session, *work, toolchain, stored=row).job


def to_recheck(
    session: Session, targets: Sequence[str], toolchain: str, off_peak: OffPeak
) -> models.Schedule | None:
    """Return the newest result that is stale, or None: also outside the hours or the budget.

    Each result is rechecked once under a toolchain, also if that fails.
    """
    moment = now()
    if not off_peak.holds(moment) or _spent_s(session, moment) >= off_peak.seconds:
        return None
    row, fresh, job = models.Schedule, aliased(models.Schedule), models.Job
    present = select(models.Toolchain.id).where(models.Toolchain.identity == toolchain)
    like_fresh, like_job = (same_work(row, other, "toolchain_id") for other in (fresh, job))
    is_known = exists().where(*like_fresh, fresh.toolchain_id.in_(present))
    is_active = or_(job.kind == "recheck", job.state.not_in(ENDED))
    is_requested = exists().where(*like_job, job.toolchain_id.in_(present), is_active)
    query = (
        select(row)
        .where(row.target.in_(targets), row.toolchain_id.not_in(present))
        .where(~is_known, ~is_requested)
        .order_by(row.created_at.desc(), row.id.desc())
    )
    for found in filter(is_sound, session.scalars(query)):
        if integrity.is_whole(found) and _finalists(session, found):
            return found
    return None


def _spent_s(session: Session, moment: datetime) -> float:
    """Return the seconds of the rechecks that were requested on this day."""
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    query = select(func.sum(models.Job.elapsed_s))
    of_today = models.Job.kind == "recheck", models.Job.created_at >= midnight
    return session.scalar(query.where(*of_today)) or 0.0


def _finalists(session: Session, stored: models.Schedule) -> list[models.Trial]:
    """Return the trial of a stored schedule and the fastest others; none if it cannot be read."""
    trial = models.Trial
    query = (
        select(trial)
        .where(trial.job_id == stored.job_id, trial.state == "timed")
        .order_by((trial.hash == stored.hash).desc(), trial.time_us, trial.number)
        .limit(queue.FINALISTS)
    )
    found = list(filter(readable, session.scalars(query)))
    return found if found and found[0].hash == stored.hash else []


def _inherit(session: Session, job: models.Job, finalists: Sequence[models.Trial]) -> None:
    """Copy the finalists; the machine speed of that time says nothing about the present one."""
    for number, trial in enumerate(finalists):
        queue.copy_trial(session, trial, job, number=number, pace=None, origin=RECHECKED)
