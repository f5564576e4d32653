"""Merge the lines of an archive into a database that may have some of them."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.search.records import TuneRequest
from tilewise.service.archive import lines
from tilewise.service.archive.fields import Line
from tilewise.service.db import models
from tilewise.service.db.base import now
from tilewise.service.db.rows import problem_row, toolchain_row
from tilewise.service.errors import ArchiveError
from tilewise.service.jobs import queue, registry
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
    `unfinished` jobs had not ended in the archive; `resumed` of them were requested again, `stale`
    ones not, since they are rechecks or nobody serves their target and toolchain.
    """

    added: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    replaced: int = 0
    postponed: int = 0
    unfinished: int = 0
    resumed: int = 0
    stale: int = 0

    def count(self, table: str, *, is_new: bool) -> None:
        """Count a row."""
        (self.added if is_new else self.known)[table] += 1


@dataclass(frozen=True)
class LocalJob:
    """A job of the archive in this database; `is_active` if it is queued or running here."""

    id: int
    is_active: bool


ACTIVE = ("queued", "running")
UNFINISHED = (
    "the archive was written while it was {}; tune the problem again, and the search goes on "
    "from its trials"
)
# Of two stores that have a job, one may have been copied before it ended.
_RANK = {"running": 0, "queued": 0, "cancelled": 1, "failed": 2, "done": 3}
_STAYS = ("job", "problem", "toolchain", "target", "cache", "seed", "created_at")


class Merger:
    """Add the lines of an archive in order; `merged` counts what was done.

    `complete` returns a line with the features of its target, `target_of` the target of a suite's
    report. The numbers that rows have in this database are kept by canonical problem, toolchain,
    host and job name.
    """

    def __init__(
        self,
        written_at: datetime,
        complete: Callable[[Line], Line],
        target_of: Callable[[dict[str, Any]], str],
    ) -> None:
        self.merged = Merged()
        self._written_at, self._complete, self._target_of = written_at, complete, target_of
        self._problems: dict[str, int] = {}
        self._toolchains: dict[str, int] = {}
        self._machines: dict[str, int] = {}
        self._jobs: dict[str, LocalJob] = {}
        self._unfinished: list[lines.JobLine] = []
        self._adders: dict[type[Line], Callable[[Session, Any], None]] = {
            lines.ProblemLine: self._add_problem,
            lines.ToolchainLine: self._add_toolchain,
            lines.MachineLine: self._add_machine,
            lines.JobLine: self._add_job,
            lines.ScheduleLine: self._add_schedule,
            lines.PastLine: self._add_past,
            lines.SuiteLine: self._add_suite,
            lines.ModelLine: self._add_model,
            lines.RangeLine: self._add_range,
        }

    def take(self, session: Session, given: Sequence[Line]) -> None:
        """Add the next lines; raise ArchiveError if one of them was changed.

        No other import may write meanwhile, and lines refer only to those before them.
        """
        for kind, some in groupby(given, type):
            if kind is lines.TrialLine:
                trials: list[Any] = list(some)
                self._add_trials(session, trials)
                continue
            for line in some:
                self._adders[kind](session, self._complete(line))
        session.flush()

    def resume(self, session: Session, here: Collection[tuple[str, str]]) -> None:
        """Queue the searches that had not ended, for targets with toolchains `here` or of workers.

        Each begins with the trials of the one that it stands for, and is answered by what is stored
        where that is as good.
        """
        served = registry.served(session).union(here)
        for line in self._unfinished:
            if line.kind == "recheck" or (line.target, line.toolchain) not in served:
                self.merged.stale += 1
                continue
            problem, request = parse_problem(line.problem), TuneRequest.of(line)
            made = queue.create_or_join(session, problem, line.target, request, line.toolchain)
            session.flush()
            self.merged.resumed += made.job is not None

    def _add_problem(self, session: Session, line: lines.ProblemLine) -> None:
        """Merge a problem; its first request is the earlier one."""
        problem = parse_problem(line.problem)
        known = session.scalar(select(models.Problem.id).where(models.Problem.key == problem.key))
        row = problem_row(session, problem)
        row.created_at = min(row.created_at, line.created_at)
        session.flush()
        self.merged.count("problems", is_new=known is None)
        self._problems[line.problem] = row.id

    def _add_toolchain(self, session: Session, line: lines.ToolchainLine) -> None:
        """Merge a toolchain, like a problem."""
        named = models.Toolchain.identity == line.toolchain
        known = session.scalar(select(models.Toolchain.id).where(named))
        row = toolchain_row(session, line.toolchain)
        row.created_at = min(row.created_at, line.created_at)
        session.flush()
        self.merged.count("toolchains", is_new=known is None)
        self._toolchains[line.toolchain] = row.id

    def _add_machine(self, session: Session, line: lines.MachineLine) -> None:
        """Merge a machine; of one host, the facts that were seen later are kept."""
        row = session.scalar(select(models.Machine).where(models.Machine.host == line.host))
        is_new = row is None
        if row is None:
            row = models.Machine(host=line.host)
            session.add(row)
        if is_new or line.seen_at > row.seen_at:
            for name, value in line.model_dump(exclude={"host"}).items():
                setattr(row, name, value)
        session.flush()
        self.merged.count("machines", is_new=is_new)
        self._machines[line.host] = row.id

    def _add_suite(self, session: Session, line: lines.SuiteLine) -> None:
        """Merge a report of a suite, identified by its SHA-256."""
        row, is_new = suites.keep(session, line.report)
        if is_new:
            row.created_at, row.target = line.created_at, self._target_of(line.report)
        session.flush()
        session.expunge(row)
        self.merged.count("suites", is_new=is_new)

    def _add_model(self, session: Session, line: lines.ModelLine) -> None:
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
            request, toolchain_id = TuneRequest(cache=line.cache), self._toolchains[line.toolchain]
            job = ended_job(request, line.target, toolchain_id, Submitter(), line.created_at)
            job.trials = line.trials
            own = {"sha256": line.sha256, "problems": line.problems, "skipped": line.skipped}
            session.add(models.Network(job=job, **own))
        self.merged.count("models", is_new=is_new)

    def _add_job(self, session: Session, line: lines.JobLine) -> None:
        """Add a job; an unfinished one is cancelled here, since its own store may go on."""
        named = {**self._work(line), "seed": line.seed, "created_at": line.created_at}
        row = session.scalar(select(models.Job).filter_by(**named).order_by(models.Job.id).limit(1))
        is_new, is_active = row is None, row is not None and row.state in ACTIVE
        ended = self._ended(line)
        if row is None:
            row = models.Job(**ended, **named)
            session.add(row)
            session.flush()
        elif not is_active and _RANK[line.state] > _RANK[row.state]:
            for name, value in ended.items():
                setattr(row, name, value)
        if line.state in ACTIVE:
            self.merged.unfinished += 1
            self._unfinished.append(line)
        self.merged.count("jobs", is_new=is_new)
        self._jobs[line.job] = LocalJob(row.id, is_active)

    def _ended(self, line: lines.JobLine) -> dict[str, Any]:
        """The columns of a job that has ended, as it has here."""
        values = line.model_dump(exclude=set(_STAYS))
        if line.state in ACTIVE:
            error = UNFINISHED.format(line.state)
            values |= {"state": "cancelled", "complete": False, "error": error}
            values["finished_at"] = self._written_at
        return values

    def _add_trials(self, session: Session, given: Sequence[lines.TrialLine]) -> None:
        """Add trials, which come job by job.

        A trial is known if the job has one of its schedule that ended at the same moment. If its
        number is taken, because the job was continued in two stores, it gets the next free one.
        """
        stored = _stored(session, {self._jobs[line.job].id for line in given})
        waiting: list[dict[str, Any]] = []
        for line in given:
            job = self._jobs[line.job]
            has = stored[job.id]
            is_new = (line.created_at, line.hash) not in has.trials
            if is_new and job.is_active:
                self.merged.postponed += 1
                continue
            self.merged.count("trials", is_new=is_new)
            if is_new:
                number = has.take(line)
                values = line.model_dump(exclude={"job", "number"})
                waiting.append({**values, "job_id": job.id, "number": number})
        if waiting:
            session.execute(insert(models.Trial), waiting)

    def _add_schedule(self, session: Session, line: lines.ScheduleLine) -> None:
        """Add a schedule: the better of the stored and the new one stays, with all proofs.

        The other one goes into the history. A stored row that was tampered with gives way, however
        fast it claims to be. Raises ArchiveError if the line or one of its proofs was changed.
        """
        query = select(models.Schedule).filter_by(**self._work(line))
        row = session.scalar(query.with_for_update(of=models.Schedule))
        self.merged.count("schedules", is_new=row is None)
        if row is None:
            row = models.Schedule(**self._columns(line))
            session.add(row)
        else:
            drop_proofs(session, integrity.tampered_proofs(session, row))
            self.merged.replaced += self._merge(session, row, line)
        if session.is_modified(row):
            _seal(session, row)
        self._add_proofs(session, row, line.proofs)

    def _add_past(self, session: Session, line: lines.PastLine) -> None:
        """Merge a past result unless it is already stored."""
        is_new = not self._is_here(session, line)
        self.merged.count("history", is_new=is_new)
        if is_new:
            self._remember(session, line, line.ended_at, was_best=line.was_best)

    def _merge(self, session: Session, row: models.Schedule, line: lines.ScheduleLine) -> bool:
        """Make of two schedules for one piece of work the row; whether it is another one now."""
        is_whole = integrity.is_whole(row)
        budget = max(row.budget, line.budget) if is_whole else line.budget
        is_replaced = not is_whole or _is_better(line, row)
        if is_replaced:
            history.supersede(session, row)
            for name, value in self._columns(line).items():
                setattr(row, name, value)
        elif not self._is_here(session, line):
            self._remember(session, line, now(), was_best=False)
        row.budget = budget
        return is_replaced

    def _is_here(self, session: Session, line: lines.ScheduleLine) -> bool:
        """Whether a result of this job and moment is here, as the best or in the history."""
        named = {"job_id": self._jobs[line.job].id, "created_at": line.created_at}
        return any(
            session.scalar(select(model.id).filter_by(**self._work(line), **named).limit(1))
            is not None
            for model in (models.Schedule, models.PastSchedule)
        )

    def _remember(
        self, session: Session, line: lines.ScheduleLine, ended_at: datetime, *, was_best: bool
    ) -> None:
        """Add a result to the history, sealed."""
        ended = {"was_best": was_best, "ended_at": ended_at, "digest": ""}
        past = models.PastSchedule(**self._columns(line), **ended)
        session.add(past)
        _seal(session, past)

    def _add_proofs(
        self, session: Session, row: models.Schedule, proofs: Sequence[lines.ProofLine]
    ) -> None:
        """Add the proofs that are not here, each with the digest that it came with."""
        query = select(models.Proof.digest, models.Proof.created_at)
        stored = session.execute(query.where(models.Proof.schedule_id == row.id))
        known = set(map(tuple, stored))
        new = []
        for proof in proofs:
            is_new = (proof.digest, proof.created_at) not in known
            self.merged.count("proofs", is_new=is_new)
            if is_new:
                new.append(proof_row(proof, schedule_id=row.id))
        if new:
            session.add_all(new)
            session.flush()
            if integrity.tampered_proofs(session, row):
                raise ArchiveError("a proof of it is not what was proven")

    def _add_range(self, session: Session, line: lines.RangeLine) -> None:
        """Add a range, with a job for it; of two for the same work the newer one stays.

        A stored row that was tampered with gives way. Raises ArchiveError if the line was changed.
        """
        problem = problem_row(session, parse_range(line.problem))
        session.flush()
        self._problems[line.problem] = problem.id
        query = select(models.TunedRange).filter_by(**self._work(line))
        stored = session.scalar(query.with_for_update(of=models.TunedRange))
        self.merged.count("ranges", is_new=stored is None)
        if stored is not None:
            if integrity.is_whole(stored) and stored.created_at >= line.created_at:
                return
            self.merged.replaced += 1
            session.delete(stored)
            session.flush()
        request = TuneRequest(trials=line.budget, cache=line.cache)
        of_work = self._toolchains[line.toolchain], Submitter(), line.created_at
        job = ended_job(request, line.target, *of_work, kind="range", problem_id=problem.id)
        job.complete, job.elapsed_s = True, line.elapsed_s
        row = models.TunedRange(**self._columns(line), job=job, digest="")
        session.add(row)
        _seal(session, row)

    def _columns(self, line: lines.ScheduleLine | lines.RangeLine) -> dict[str, Any]:
        """Return the columns of a result's row, without its digest."""
        values = {**line.model_dump(exclude=ELSEWHERE), **self._work(line)}
        values["machine_id"] = self._machines[line.host]
        if isinstance(line, lines.ScheduleLine):
            values["job_id"] = self._jobs[line.job].id
        return values

    def _work(self, line: lines.JobLine | lines.ScheduleLine | lines.RangeLine) -> dict[str, Any]:
        """Return the columns of a job's or schedule's problem, target, toolchain and caches."""
        return {
            "problem_id": self._problems[line.problem],
            "target": line.target,
            "toolchain_id": self._toolchains[line.toolchain],
            "cache": line.cache,
        }


@dataclass
class _Stored:
    """The trials that a job has here: each by its moment and its schedule, and their numbers."""

    trials: set[tuple[datetime, str]] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)

    def take(self, line: lines.TrialLine) -> int:
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


def _seal(session: Session, row: Result) -> None:
    """Write a row with its digest, as the database gives its values back."""
    session.flush()
    session.refresh(row)
    row.digest = integrity.result_digest(ResultKey.of(row), row)
    session.flush()
    if not integrity.is_whole(row):
        raise ArchiveError("it is not what was stored")


def _is_better(line: lines.ScheduleLine, row: models.Schedule) -> bool:
    """Whether a result is the better one; of two that are as good, the one that came first."""
    theirs, ours = history.measured_of(line), history.measured_of(row)
    if theirs.supersedes(ours) != ours.supersedes(theirs):
        return theirs.supersedes(ours)
    return line.created_at < row.created_at


def proof_row(line: lines.ProofLine, **others: Any) -> models.Proof:
    """Return a proof as a row with its script's row; `others` are further columns of both."""
    script = line.script
    spelled = None if script is None else models.Script(**script.model_dump(), **others)
    return models.Proof(script=spelled, **line.model_dump(exclude={"script"}), **others)
