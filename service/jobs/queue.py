"""The queue: request and look up searches, and cancel jobs of any kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, func, inspect, or_, select
from sqlalchemy.orm import Session

from tilewise.kernels.errors import ProblemError, TargetError
from tilewise.kernels.mlir.tuning_spec import form
from tilewise.kernels.problem import Problem, ProblemRange, parse_problem
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import target_kind
from tilewise.search.ranges.samples import sample_sizes
from tilewise.search.records import MOST_TRIALS, RECHECKED, TuneRequest
from tilewise.service.db import models, rows
from tilewise.service.db.base import is_sound
from tilewise.service.db.models import ENDED, JobKind
from tilewise.service.errors import ConflictError, ForbiddenError, TooManyJobsError, UndoneError
from tilewise.service.jobs import lease
from tilewise.service.results import history, integrity, ranges
from tilewise.service.results.schedules import find_fresh
from tilewise.service.results.stored import Lookup, shown_proofs

SEARCHES: tuple[JobKind, ...] = ("tune", "range", "recheck")
"""The kinds of jobs for one problem or one range."""
FINALISTS = 4  # of a recheck: the winner, and others, since of one no disturbed round is noticed


@dataclass(frozen=True)
class Submission:
    """The answer to a request: the stored schedule or range that answers it, else the job."""

    stored: models.Schedule | models.TunedRange | None = None
    job: models.Job | None = None


@dataclass(frozen=True)
class Submitter:
    """The caller of a search; `most_in_flight` limits the token's active jobs, 0 is no limit."""

    token_id: int | None = None
    request_id: str | None = None
    most_in_flight: int = 0


def create_or_join(
    session: Session,
    problem: Problem | ProblemRange,
    target: str,
    request: TuneRequest,
    toolchain: str,
    by: Submitter | None = None,
    *,
    again: bool = False,
) -> Submission:
    """Answer a request from the store, join the job for the same work, or queue one.

    A queued job that is joined takes the larger of the two budgets; a running one keeps its own. A
    new job continues with the trials of an earlier one for the same work, so that a larger budget
    costs only the difference. A noisy result answers nothing: the new job has its trials, and times
    its finalists again, as does `again`. A joined job stays with its first requester.
    """
    problem_id = rows.problem_row(session, problem).id
    lookup = Lookup(target, toolchain, request.cache)
    if isinstance(problem, ProblemRange):
        known = ranges.find_range(session, problem.key, lookup)
        if known and not again and _answers_range(session, known, problem, request, lookup):
            return Submission(stored=known)
    elif (stored := find_fresh(session, problem, lookup)) and _is_untouched(session, stored):
        if not again and answers(stored, request):
            return Submission(stored=stored)
        request = _retiming(stored, request, again=again)
    kind: JobKind = "range" if isinstance(problem, ProblemRange) else "tune"
    work = problem_id, target, request, toolchain, by or Submitter()
    return Submission(job=joined_or_queued(session, kind, *work))


def joined_or_queued(
    session: Session,
    kind: JobKind,
    problem_id: int,
    target: str,
    request: TuneRequest,
    toolchain: str,
    by: Submitter,
    inherit: Callable[[Session, models.Job], None] | None = None,
) -> models.Job:
    """Return the active job of some work, widened by the request, or a new one.

    `inherit` gives a new job its first trials, by default those of an earlier one.
    """
    toolchain_id = rows.toolchain_row(session, toolchain).id
    job = new_job(request, target, toolchain_id, by, problem_id=problem_id, kind=kind)
    of_work = rows.same_work(models.Job, job)
    active = select(models.Job).where(*of_work, models.Job.state.not_in(ENDED))
    # Locked on a server, where a worker could claim it before it is widened.
    active = active.with_for_update(of=models.Job)
    running = session.scalar(active)
    if running is None or lease.fail_damaged(session, running):
        require_room(session, by, "tune")
        if rows.inserted(session, job):
            (inherit or _inherit)(session, job)
            return job
        running = session.scalar(active)
        if running is None:
            raise UndoneError("another request for the same work was first, and has ended")
    _widen(session, running, request, kind)
    return running


def check_covered(
    problem: Problem | ProblemRange, target: str, *, has_cluster: bool = False
) -> Problem:
    """Return the largest problem of a request; TargetError or ProblemError if nothing tunes it."""
    if not isinstance(problem, ProblemRange):
        form.check_covered(problem, target)
        return problem
    if target_kind(target) == "iree":
        raise TargetError(
            f"target {quoted(target)}: ranges are tuned for our own code; give a target cpu:NAME"
        )
    if has_cluster:
        raise ProblemError(
            f"{problem}: the workers of a cluster tune no ranges; give single sizes, or run "
            "tilewise tune on one machine",
            problem.dims[0],
        )
    return problem.at(problem.sizes[-1])


def require_room(session: Session, by: Submitter, kind: JobKind) -> None:
    """Raise TooManyJobsError where a token has as many jobs of a kind in flight as it may."""
    if by.token_id is None or not by.most_in_flight:
        return
    query = select(func.count()).where(
        models.Job.token_id == by.token_id,
        models.Job.kind.in_(SEARCHES if kind in SEARCHES else (kind,)),
        models.Job.state.in_(("queued", "running")),
    )
    if (session.scalar(query) or 0) >= by.most_in_flight:
        what = "jobs" if kind == "tune" else "plans"
        raise TooManyJobsError(
            f"limit reached: this token already has {by.most_in_flight} queued or running {what}; "
            "retry when one has ended"
        )


def new_job(
    request: TuneRequest, target: str, toolchain_id: int, by: Submitter, **columns: Any
) -> models.Job:
    """Return a job that waits, and is not part of a session yet."""
    return models.Job(
        target=target,
        toolchain_id=toolchain_id,
        **vars(request),
        state="queued",
        token_id=by.token_id,
        request_id=by.request_id,
        **columns,
    )


def _inherit(session: Session, job: models.Job) -> None:
    """Copy the trials of the earlier job that had most of them, as far as the budget goes."""
    # Times of a recheck are of another toolchain: only timing its finalists again takes them.
    own = [models.Trial.origin != RECHECKED] if job.trials > FINALISTS else []
    earlier = (
        select(models.Trial.job_id)
        .join(models.Job, models.Job.id == models.Trial.job_id)
        .where(*rows.same_work(models.Job, job), models.Job.state.in_(ENDED), *own)
        .group_by(models.Trial.job_id)
        .order_by(func.count().desc(), models.Trial.job_id.desc())
        .limit(1)
    )
    source = session.scalar(earlier)
    if source is None:
        return
    query = select(models.Trial).where(models.Trial.job_id == source, *own)
    trials = session.scalars(query.order_by(models.Trial.number).limit(job.trials))
    for trial in filter(is_sound, trials):
        copy_trial(session, trial, job)


def copy_trial(session: Session, trial: models.Trial, job: models.Job, **changes: Any) -> None:
    """Add a copy of a trial to another job, with some columns changed."""
    kept = (c.key for c in inspect(models.Trial).column_attrs if c.key not in ("id", "job_id"))
    values = {key: getattr(trial, key) for key in kept}
    session.add(models.Trial(job_id=job.id, **values | changes))


def _widen(session: Session, job: models.Job, request: TuneRequest, kind: JobKind) -> None:
    """Let a queued job do what a request requires; a recheck becomes the search."""
    if job.state == "queued" and job.kind == "recheck" and kind == "tune":
        session.execute(delete(models.Trial).where(models.Trial.job_id == job.id))
        for name, value in vars(request).items():
            setattr(job, name, value)
        job.kind = kind
        _inherit(session, job)
    elif job.state == "queued":
        job.trials = max(job.trials, request.trials)
        job.peers = job.peers or request.peers
        job.spread = max(job.spread, request.spread)
        if job.seconds is not None:
            job.seconds = None if request.seconds is None else max(job.seconds, request.seconds)


def answers(stored: models.Schedule, request: TuneRequest) -> bool:
    """Return whether a current schedule answers `request`: searched as long, and not noisy."""
    is_enough = stored.budget >= request.trials and (stored.peers is not None or not request.peers)
    return is_enough and history.quality(stored) == "good"


def _answers_range(
    session: Session,
    stored: models.TunedRange,
    problems: ProblemRange,
    request: TuneRequest,
    lookup: Lookup,
) -> bool:
    """Whether a stored range is unchanged, fresh, and was searched as requested."""
    is_fresh = stored.toolchain.identity == lookup.toolchain and stored.budget >= request.trials
    if not is_fresh or not integrity.is_whole(stored):
        return False
    sizes = sample_sizes(problems) if request.peers else ()  # they have the peers
    found = (find_fresh(session, problems.at(size), lookup) for size in sizes)
    return all(one is not None and one.peers is not None for one in found)


def _retiming(stored: models.Schedule, request: TuneRequest, *, again: bool) -> TuneRequest:
    """Return the request of a job that may replace a stored result.

    It has all trials of the stored one, so that its finalists are among them, and the peers.
    """
    budget = min(max(stored.budget, 1), MOST_TRIALS)  # an archive may say anything
    trials = budget if again else max(request.trials, budget)
    return replace(request, trials=trials, peers=request.peers or stored.peers is not None)


def retime_one(session: Session, targets: Sequence[str], toolchain: str) -> models.Job | None:
    """Queue a job that times the finalists of a noisy result again, or return None."""
    row = history.to_retime(session, targets, toolchain)
    if row is None:
        return None
    request = TuneRequest(cache=row.cache)
    problem = parse_problem(row.problem.canonical)
    return create_or_join(session, problem, row.target, request, toolchain, again=True).job


def _is_untouched(session: Session, stored: models.Schedule) -> bool:
    """Whether a schedule and its proofs are unchanged; a search replaces others.

    Every search tries to prove a script, so a schedule without any has lost them.
    """
    return (
        integrity.is_whole(stored)
        and shown_proofs(session, [stored.id]) != {}
        and not integrity.tampered_proofs(session, stored)
    )


def get(session: Session, job_id: int, *, kind: JobKind = "tune", lock: bool = False) -> models.Job:
    """Return the job, locked if `lock`; raise NotFoundError or DamagedError.

    Jobs of kind `range` and `recheck` are found as those of kind `tune`.
    """
    kinds = SEARCHES if kind in SEARCHES else (kind,)
    query = select(models.Job).where(models.Job.id == job_id, models.Job.kind.in_(kinds))
    job = session.scalar(query.with_for_update(of=models.Job) if lock else query)
    return rows.required(job, f"job {job_id}", lease.fault_of)


def list_jobs(
    session: Session,
    *,
    kind: JobKind | None = "tune",
    state: str | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[models.Job]:
    """Return jobs with numbers below `before`, newest first; of models only those with a plan.

    Of kind `tune` are those of ranges and rechecks, too.
    """
    wanted: list[ColumnElement[bool]] = []
    if kind is not None:
        wanted.append(models.Job.kind.in_(SEARCHES if kind == "tune" else (kind,)))
    if kind != "tune":
        has_plan = exists().where(models.Plan.job_id == models.Job.id)
        wanted.append(or_(models.Job.kind != "model", has_plan))
    return rows.newest(
        session, models.Job, before, limit, *wanted, *rows.given((models.Job.state, state))
    )


def cancel(session: Session, job_id: int, only_of: int | None = None) -> models.Job:
    """Cancel a job; its owner sees it after the present trial.

    `only_of` is the token that must have created it. Raises as `get` and `call_off`.
    """
    job = get(session, job_id, lock=True)
    call_off(session, job, f"job {job_id}", only_of)
    return job


def call_off(session: Session, job: models.Job, name: str, only_of: int | None) -> None:
    """Cancel a locked job of any kind; one that was cancelled stays as it is.

    `name` is for messages: `plan 3`. Raises ForbiddenError unless token `only_of` created it,
    ConflictError if the job has ended.
    """
    if only_of is not None and job.token_id != only_of:
        raise ForbiddenError(
            f"{name} was requested with another token; cancel it with that one, or with one of "
            "scope admin"
        )
    if job.state in ("done", "failed"):
        raise ConflictError(f"{name} is {job.state} and cannot be cancelled")
    if job.state != "cancelled":
        lease.call_off(session, job)


def counts(session: Session, job_id: int) -> dict[str, int]:
    """Return how many trials of the job were timed, pruned and failed."""
    query = (
        select(models.Trial.state, func.count().label("number"))
        .where(models.Trial.job_id == job_id)
        .group_by(models.Trial.state)
    )
    found = {row.state: row.number for row in session.execute(query)}
    return {"timed": 0, "pruned": 0, "failed": 0, **found}


def best_trial(session: Session, job_id: int) -> models.Trial | None:
    """Return the fastest completely timed trial of the job."""
    query = (
        select(models.Trial)
        .where(models.Trial.job_id == job_id, models.Trial.state == "timed")
        .order_by(models.Trial.gflops.desc(), models.Trial.number)
    )
    first = session.scalar(query.limit(1))
    if first is None or is_sound(first):
        return first
    return next(filter(is_sound, session.scalars(query)), None)


def trials_page(
    session: Session,
    job_id: int,
    *,
    state: str | None = None,
    after: int | None = None,
    limit: int | None = None,
) -> list[models.Trial]:
    """Return at most `limit` trials by number, after the trial `after`."""
    wanted = rows.given((models.Trial.job_id, job_id), (models.Trial.state, state))
    query = select(models.Trial).where(*wanted)
    if after is not None:
        query = query.where(models.Trial.number > after)
    return list(session.scalars(query.order_by(models.Trial.number).limit(limit)))


def result_of(session: Session, job: models.Job) -> models.Schedule | models.TunedRange | None:
    """Return the stored result of a completed job; None for other jobs."""
    if job.state != "done":
        return None
    find = ranges.find_range if job.kind == "range" else find_fresh
    return find(session, job.problem.key, Lookup.of(job))
