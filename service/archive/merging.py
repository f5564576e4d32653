"""Merge the lines of an archive into a database that may have some of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.search.records import TuneRequest
from tilewise.service.archive.lines import (
    JobLine,
    MachineLine,
    ModelLine,
    PastLine,
    ProblemLine,
    ProofLine,
    RangeLine,
    ScheduleLine,
    SuiteLine,
    ToolchainLine,
    TrialLine,
)
from tilewise.service.db import models
from tilewise.service.db.base import now
from tilewise.service.db.rows import problem_row, toolchain_row
from tilewise.service.errors import ArchiveError
from tilewise.service.jobs import queue
from tilewise.service.jobs.model_jobs import ended_job
from tilewise.service.jobs.queue import Submitter
from tilewise.service.results import history, integrity, suites
from tilewise.service.results.integrity import Result
from tilewise.service.results.scripts import drop_proofs
from tilewise.service.results.stored import ResultKey, among

ELSEWHERE = {"job", "problem", "toolchain", "host", "digest", "proofs", "was_best", "ended_at"}
"""What of a result's line is no column of its row."""


@dataclass
class Merged:
    """The outcome of an import.

    `added` and `known` count rows by table; `replaced` schedules gave way to faster ones of the
    archive, ranges to newer ones. `postponed` trials belong to jobs that are active here.
    `unfinished` jobs had not ended in the archive; `resumed` of them were requested again.
    """

    added: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    replaced: int = 0
    postponed: int = 0
    unfinished: int = 0
    resumed: int = 0

    def count(self, table: str, *, is_new: bool) -> None:
        """Count a row."""
        (self.added if is_new else self.known)[table] += 1


@dataclass(frozen=True)
class LocalJob:
    """A job of the archive in this database; `is_active` if it is queued or running here."""

    id: int
    is_active: bool


@dataclass
class Numbers:
    """The numbers that rows of an archive have in this database.

    The keys are canonical problems, toolchain identities, hosts and job names.
    """

    problems: dict[str, int] = field(default_factory=dict)
    toolchains: dict[str, int] = field(default_factory=dict)
    machines: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, LocalJob] = field(default_factory=dict)
    unfinished: list[JobLine] = field(default_factory=list)

    def work(self, line: JobLine | ScheduleLine | RangeLine) -> dict[str, Any]:
        """Return the columns of a job's or schedule's problem, target, toolchain and caches."""
        return {
            "problem_id": self.problems[line.problem],
            "target": line.target,
            "toolchain_id": self.toolchains[line.toolchain],
            "cache": line.cache,
        }


_FACTS = (
    *("cpu", "cores", "memory_bytes", "caches", "features"),
    *("peaks", "bandwidth_gbs", "peaks_at", "seen_at"),
)


def add_problem(session: Session, line: ProblemLine, numbers: Numbers, merged: Merged) -> None:
    """Merge a problem; its first request is the earlier one."""
    problem = parse_problem(line.problem)
    known = session.scalar(select(models.Problem.id).where(models.Problem.key == problem.key))
    row = problem_row(session, problem)
    row.created_at = min(row.created_at, line.created_at)
    session.flush()
    merged.count("problems", is_new=known is None)
    numbers.problems[line.problem] = row.id


def add_toolchain(session: Session, line: ToolchainLine, numbers: Numbers, merged: Merged) -> None:
    """Merge a toolchain, like a problem."""
    named = models.Toolchain.identity == line.toolchain
    known = session.scalar(select(models.Toolchain.id).where(named))
    row = toolchain_row(session, line.toolchain)
    row.created_at = min(row.created_at, line.created_at)
    session.flush()
    merged.count("toolchains", is_new=known is None)
    numbers.toolchains[line.toolchain] = row.id


def add_machine(session: Session, line: MachineLine, numbers: Numbers, merged: Merged) -> None:
    """Merge a machine; of one host, the facts that were seen later are kept."""
    row = session.scalar(select(models.Machine).where(models.Machine.host == line.host))
    is_new = row is None
    if row is None:
        row = models.Machine(host=line.host)
        session.add(row)
    if is_new or line.seen_at > row.seen_at:
        for name in _FACTS:
            setattr(row, name, getattr(line, name))
    session.flush()
    merged.count("machines", is_new=is_new)
    numbers.machines[line.host] = row.id


def add_suite(session: Session, line: SuiteLine, merged: Merged, target: str) -> None:
    """Merge a report of a suite, identified by its SHA-256."""
    row, is_new = suites.keep(session, line.report)
    if is_new:
        row.created_at, row.target = line.created_at, target
    session.flush()
    session.expunge(row)
    merged.count("suites", is_new=is_new)


def add_model(session: Session, line: ModelLine, numbers: Numbers, merged: Merged) -> None:
    """Merge a model, identified by its module and moment."""
    known = (
        select(models.Network.id)
        .join(models.Network.job)
        .where(
            models.Network.sha256 == line.sha256,
            models.Job.target == line.target,
            models.Job.created_at == line.created_at,
        )
    )
    is_new = session.scalar(known.limit(1)) is None
    if is_new:
        request, toolchain_id = TuneRequest(cache=line.cache), numbers.toolchains[line.toolchain]
        job = ended_job(request, line.target, toolchain_id, Submitter(), line.created_at)
        job.trials = line.trials
        own = {"sha256": line.sha256, "problems": line.problems, "skipped": line.skipped}
        session.add(models.Network(job=job, **own))
    merged.count("models", is_new=is_new)


ACTIVE = ("queued", "running")
UNFINISHED = (
    "the archive was written while it was {}; tune the problem again, and the search goes on "
    "from its trials"
)
# Of two stores that have a job, one may have been copied before it ended.
_RANK = {"running": 0, "queued": 0, "cancelled": 1, "failed": 2, "done": 3}
_STAYS = ("job", "problem", "toolchain", "target", "cache", "seed", "created_at")


def add_job(
    session: Session, line: JobLine, numbers: Numbers, merged: Merged, written_at: datetime
) -> None:
    """Add a job; an unfinished one is cancelled here, since its own store may go on.

    `numbers` gets its number. `written_at` is the moment of the archive.
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
    """Add trials, which come job by job.

    A trial is known if the job has one of its schedule that ended at the same moment. If its number
    is taken, because the job was continued in two stores, it gets the next free one.
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
    query = select(trial.job_id, trial.number, trial.created_at, trial.hash)
    of_these = among(session, trial.__table__.c.job_id, jobs)
    for job, number, moment, name in session.execute(query.where(of_these)):
        found[job].trials.add((moment, name))
        found[job].numbers.add(number)
    return found


def resume(session: Session, numbers: Numbers) -> int:
    """Queue the searches that had not ended; return how many are queued.

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


def add_schedule(session: Session, line: ScheduleLine, numbers: Numbers, merged: Merged) -> None:
    """Add a schedule: the better of the stored and the new one stays, with all proofs.

    The other one goes into the history. A stored row that was tampered with gives way, however fast
    it claims to be. Raises ArchiveError if the line or one of its proofs was changed.
    """
    query = select(models.Schedule).filter_by(**numbers.work(line))
    row = session.scalar(query.with_for_update(of=models.Schedule))
    merged.count("schedules", is_new=row is None)
    if row is None:
        row = models.Schedule()
        session.add(row)
        _fill(row, line, numbers)
    else:
        drop_proofs(session, integrity.tampered_proofs(session, row))
        merged.replaced += _merge(session, row, line, numbers)
    if session.is_modified(row):
        _seal(session, row)
    _add_proofs(session, row, line.proofs, merged)


def _seal(session: Session, row: Result) -> None:
    """Write a row with its digest, as the database gives its values back."""
    session.flush()
    session.refresh(row)
    row.digest = integrity.result_digest(ResultKey.of(row), row)
    session.flush()
    if not integrity.is_whole(row):
        raise ArchiveError("it is not what was stored")


def add_past(session: Session, line: PastLine, numbers: Numbers, merged: Merged) -> None:
    """Merge a past result unless it is already stored."""
    is_new = not _is_here(session, line, numbers)
    merged.count("history", is_new=is_new)
    if is_new:
        _remember(session, line, numbers, was_best=line.was_best, ended_at=line.ended_at)


def _merge(session: Session, row: models.Schedule, line: ScheduleLine, numbers: Numbers) -> bool:
    """Make of two schedules for one piece of work the row; whether it is another one now."""
    is_whole = integrity.is_whole(row)
    budget = max(row.budget, line.budget) if is_whole else line.budget
    is_replaced = not is_whole or _is_better(line, row)
    if is_replaced:
        history.supersede(session, row)
        _fill(row, line, numbers)
    elif not _is_here(session, line, numbers):
        _remember(session, line, numbers, was_best=False, ended_at=now())
    row.budget = budget
    return is_replaced


def _is_here(session: Session, line: ScheduleLine, numbers: Numbers) -> bool:
    """Whether a result of this job and moment is here, as the best or in the history."""
    named = {"job_id": numbers.jobs[line.job].id, "created_at": line.created_at}
    return any(
        session.scalar(select(model.id).filter_by(**numbers.work(line), **named).limit(1))
        is not None
        for model in (models.Schedule, models.PastSchedule)
    )


def _remember(
    session: Session, line: ScheduleLine, numbers: Numbers, *, was_best: bool, ended_at: datetime
) -> None:
    """Add a result to the history, sealed."""
    past = models.PastSchedule(was_best=was_best, ended_at=ended_at, digest="")
    _fill(past, line, numbers)
    session.add(past)
    _seal(session, past)


def _fill(row: models.Schedule | models.PastSchedule, line: ScheduleLine, numbers: Numbers) -> None:
    for name, value in line.model_dump(exclude=ELSEWHERE).items():
        setattr(row, name, value)
    row.problem_id = numbers.problems[line.problem]
    row.toolchain_id = numbers.toolchains[line.toolchain]
    row.machine_id = numbers.machines[line.host]
    row.job_id = numbers.jobs[line.job].id


def _is_better(line: ScheduleLine, row: models.Schedule) -> bool:
    """Whether a result is the better one; of two that are as good, the one that came first."""
    theirs, ours = history.measured_of(line), history.measured_of(row)
    if theirs.supersedes(ours) != ours.supersedes(theirs):
        return theirs.supersedes(ours)
    return line.created_at < row.created_at


def _add_proofs(
    session: Session, row: models.Schedule, proofs: list[ProofLine], merged: Merged
) -> None:
    """Add the proofs that are not here, each with the digest that it came with."""
    query = select(models.Proof.digest, models.Proof.created_at)
    known = {
        tuple(found) for found in session.execute(query.where(models.Proof.schedule_id == row.id))
    }
    new = []
    for proof in proofs:
        is_new = (proof.digest, proof.created_at) not in known
        merged.count("proofs", is_new=is_new)
        if is_new:
            new.append(proof_row(proof, schedule_id=row.id))
    if new:
        session.add_all(new)
        session.flush()
        if integrity.tampered_proofs(session, row):
            raise ArchiveError("a proof of it is not what was proven")


def add_range(session: Session, line: RangeLine, numbers: Numbers, merged: Merged) -> None:
    """Add a range, with a job for it; of two for the same work the newer one stays.

    A stored row that was tampered with gives way. Raises ArchiveError if the line was changed.
    """
    problem = problem_row(session, parse_range(line.problem))
    session.flush()
    numbers.problems[line.problem] = problem.id
    work = numbers.work(line)
    query = select(models.TunedRange).filter_by(**work).with_for_update(of=models.TunedRange)
    stored = session.scalar(query)
    merged.count("ranges", is_new=stored is None)
    if stored is not None:
        if integrity.is_whole(stored) and stored.created_at >= line.created_at:
            return
        merged.replaced += 1
        session.delete(stored)
        session.flush()
    request = TuneRequest(trials=line.budget, cache=line.cache)
    of_work = work["toolchain_id"], Submitter(), line.created_at
    job = ended_job(request, line.target, *of_work, kind="range", problem_id=problem.id)
    job.complete, job.elapsed_s = True, line.elapsed_s
    values = line.model_dump(exclude=ELSEWHERE) | work
    row = models.TunedRange(**values, machine_id=numbers.machines[line.host], job=job, digest="")
    session.add(row)
    _seal(session, row)


def proof_row(line: ProofLine, **others: Any) -> models.Proof:
    """Return a proof as a row with its script's row; `others` are further columns of both."""
    script = line.script
    spelled = None if script is None else models.Script(**script.model_dump(), **others)
    return models.Proof(script=spelled, **line.model_dump(exclude={"script"}), **others)
