"""Export: a selection of a store, or all of it, as an archive."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from zipfile import ZIP_DEFLATED, ZipFile

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session, joinedload, undefer
from sqlalchemy.orm.interfaces import ORMOption as ExecutableOption
from sqlalchemy.sql.elements import SQLCoreOperations

from tilewise.kernels.system.files import replacing
from tilewise.service.archive import rows
from tilewise.service.archive.container import FORMAT, ArchiveWriter, Manifest
from tilewise.service.archive.fields import Line
from tilewise.service.archive.lines import MEMBERS
from tilewise.service.archive.rows import RefusedRowError
from tilewise.service.db import checked, models, schema
from tilewise.service.db.base import Base, now
from tilewise.service.db.session import Sessions
from tilewise.service.errors import NotFoundError


@dataclass(frozen=True)
class Selection:
    """Which results go into an archive; an empty field does not select.

    `since` keeps searches that were requested or ended, and results that were stored, from then on.
    `best` keeps the results that are served, each with its job and the trial that found it.
    `origin` is written to the schedules that have none, and selects nothing.
    """

    problems: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    since: datetime | None = None
    best: bool = False
    origin: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether all of the store is selected."""
        return self == Selection(origin=self.origin)

    @property
    def names_problems(self) -> bool:
        """Whether results of problems are selected, which neither suites nor models are."""
        return bool(self.problems or self.kinds or self.dtypes or self.best)

    def to_plain(self) -> dict[str, list[str]]:
        """Return the values of each option that selects."""
        options = {
            "problem": self.problems,
            "kind": self.kinds,
            "dtype": self.dtypes,
            "target": self.targets,
            "since": () if self.since is None else (self.since.isoformat(),),
            "best": ("yes",) if self.best else (),
            "origin": (self.origin,) if self.origin else (),
        }
        return {name: list(values) for name, values in options.items() if values}

    def jobs(self) -> list[ColumnElement[bool]]:
        """Return conditions on jobs that are joined with their problems."""
        found = self._of_work(models.Job.target)
        if self.since is not None:
            found.append(
                or_(
                    models.Job.created_at >= self.since,
                    models.Job.finished_at >= self.since,
                    models.Job.state.in_(("queued", "running")),
                )
            )
        return found

    def schedules(
        self,
        model: type[models.Schedule]
        | type[models.PastSchedule]
        | type[models.TunedRange] = models.Schedule,
    ) -> list[ColumnElement[bool]]:
        """Return conditions on stored or past results that are joined with their problems."""
        found = self._of_work(model.target)
        if self.since is not None:
            found.append(model.created_at >= self.since)
        return found

    def of_place(
        self, target: SQLCoreOperations[str], created: SQLCoreOperations[datetime]
    ) -> list[ColumnElement[bool]]:
        """Return conditions on rows that have a target and a moment, but no problem."""
        found = [target.in_(self.targets)] if self.targets else []
        return [*found, *([] if self.since is None else [created >= self.since])]

    def _of_work(self, target: SQLCoreOperations[str]) -> list[ColumnElement[bool]]:
        canonical = models.Problem.canonical
        found: list[ColumnElement[bool]] = []
        if self.problems:
            found.append(canonical.in_(self.problems))
        if self.kinds:
            found.append(or_(*(canonical.startswith(f"{kind}:") for kind in self.kinds)))
        if self.dtypes:
            named = [f",dtype={dtype}" for dtype in self.dtypes]
            ends = [canonical.endswith(text) for text in named]
            inside = [canonical.contains(f"{text},") for text in named]
            found.append(or_(*ends, *inside))
        if self.targets:
            found.append(target.in_(self.targets))
        return found


ROWS_AT_ONCE = 500

Row = TypeVar("Row", bound=Base)
Result = TypeVar("Result", models.Schedule, models.PastSchedule, models.TunedRange)
Rows = Iterator[Any]

_NAMED = {"problem": "canonical", "toolchain": "identity", "host": "host"}
"""The columns by which lines refer to rows."""


def export(sessions: Sessions, path: Path, selection: Selection, written_by: str) -> Manifest:
    """Write an archive of the selection and return its manifest.

    The archive is a snapshot, so searches may go on. Damaged rows are left out and counted, with
    what belongs to them. The file is replaced once the new one is complete. Raises NotFoundError,
    and writes no file, if nothing is selected.
    """
    with checked.reading(sessions) as session:
        if session.get_bind().dialect.name == "postgresql":
            session.rollback()
            session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        storing = replacing(path, f".{path.name}.", is_kept=True)
        with storing as file, ZipFile(file, "w", ZIP_DEFLATED) as zipped:
            return _Export(session, selection, ArchiveWriter(zipped)).run(written_by)


@dataclass
class _Export:
    """One export.

    `jobs` maps the numbers of written jobs to names; `used` collects the names in the lines of
    problems, toolchains, hosts and jobs.
    """

    session: Session
    selection: Selection
    writer: ArchiveWriter
    left_out: Counter[str] = field(default_factory=Counter)
    jobs: dict[int, str] = field(default_factory=dict)
    used: dict[str, set[str]] = field(
        default_factory=lambda: {name: set() for name in ("problem", "toolchain", "host", "job")}
    )

    def run(self, written_by: str) -> Manifest:
        """Write every member, and the manifest."""
        selected: dict[str, tuple[Rows, Callable[[Any], Line]]] = {
            "jobs.jsonl": (self._searches(), self._job_line),
            "trials.jsonl": (self._trials(), lambda row: rows.trial_line(row, self._job_of(row))),
            "schedules.jsonl": (self._results(models.Schedule), self._schedule_line),
            "history.jsonl": (
                iter(()) if self.selection.best else self._results(models.PastSchedule),
                lambda row: rows.past_line(row, self._job_of(row)),
            ),
            "suites.jsonl": (self._suites(), rows.suite_line),
            "models.jsonl": (self._models(), rows.model_line),
            "ranges.jsonl": (self._results(models.TunedRange), rows.range_line),
        }
        for name, (found, line_of) in selected.items():
            self._write(name, found, line_of)
        self._require_anything(selected)
        # What the others refer to is known when they are written.
        ranges = select(models.Job.problem_id).where(models.Job.kind == "range")
        problems = self._all(models.Problem, [models.Problem.id.not_in(ranges)])
        toolchains, machines = self._all(models.Toolchain, []), self._all(models.Machine, [])
        self._write("problems.jsonl", self._used("problem", problems), rows.problem_line)
        self._write("toolchains.jsonl", self._used("toolchain", toolchains), rows.toolchain_line)
        self._write("machines.jsonl", self._used("host", machines), rows.machine_line)
        manifest = Manifest(
            format=FORMAT,
            written_by=written_by,
            db_schema=schema.HEAD,
            created_at=now(),
            selection=self.selection.to_plain(),
            left_out=dict(self.left_out),
            members={name: self.writer.members[name] for name in MEMBERS},
        )
        self.writer.end(manifest)
        return manifest

    def _write(self, name: str, found: Rows, line_of: Callable[[Any], Line]) -> None:
        """Write a member, without the rows that have no line."""
        with self.writer.member(name) as add:
            for row in found:
                try:
                    line = line_of(row)
                except RefusedRowError:
                    self.left_out[name] += 1
                    continue
                for kind, names in self.used.items():
                    names.update(filter(None, [getattr(line, kind, None)]))
                add(rows.text_of(line))

    def _require_anything(self, members: Iterable[str]) -> None:
        """Raise NotFoundError where a selection selects no row of the members."""
        is_empty = not any(self.writer.members[name].rows + self.left_out[name] for name in members)
        if is_empty and not self.selection.is_whole:
            given = self.selection.to_plain().items()
            options = " ".join(f"--{name} {' '.join(values)}" for name, values in given)
            raise NotFoundError(f"nothing is stored that {options} selects; no archive was written")

    def _searches(self) -> Rows:
        of_problem = select(models.Job.id).join(models.Job.problem)
        chosen = [
            select(result.job_id).join(result.problem).where(*self.selection.schedules(result))
            for result in (models.Schedule, models.PastSchedule)
        ]
        chosen = (
            chosen[:1]
            if self.selection.best
            else [*chosen, of_problem.where(*self.selection.jobs())]
        )
        wanted: list[ColumnElement[bool]] = [models.Job.kind.in_(("tune", "recheck"))]
        if not self.selection.is_whole:
            wanted.append(or_(*map(models.Job.id.in_, chosen)))
        return self._all(models.Job, wanted)

    def _job_line(self, row: models.Job) -> Line:
        line = rows.job_line(row)
        if line.job in self.used["job"]:
            raise RefusedRowError("another job has the same name")
        self.jobs[row.id] = line.job
        return line

    def _job_of(self, row: Any) -> str:
        """The name of the job of a trial or a result."""
        if row.job_id not in self.jobs:
            raise RefusedRowError("the job that found it is not there")
        return self.jobs[row.job_id]

    def _trials(self) -> Rows:
        columns = models.Trial.__table__.c
        for number in self.jobs:
            query = select(*columns).where(columns.job_id == number).order_by(columns.number)
            if self.selection.best:
                found = select(models.Schedule.hash).where(models.Schedule.job_id == number)
                query = query.where(columns.hash.in_(found))
            yield from self.session.execute(query.execution_options(yield_per=ROWS_AT_ONCE))

    def _schedule_line(self, row: models.Schedule) -> Line:
        proofs = (
            select(models.Proof)
            .options(joinedload(models.Proof.script))
            .where(models.Proof.schedule_id == row.id)
            .order_by(models.Proof.id)
        )
        found = list(self.session.scalars(proofs))
        job, origin = self._job_of(row), self.selection.origin
        return rows.schedule_line(self.session, row, job, found, origin)

    def _results(self, model: type[Result]) -> Iterator[Result]:
        """The stored or the past results that are selected."""
        chosen = select(model.id).join(model.problem).where(*self.selection.schedules(model))
        wanted = [] if self.selection.is_whole else [model.id.in_(chosen)]
        return self._all(model, wanted, joinedload(model.machine), joinedload(model.job))

    def _suites(self) -> Rows:
        model = models.SuiteReport
        if self.selection.names_problems:
            return iter(())
        wanted = self.selection.of_place(model.target, model.created_at)
        return self._all(model, wanted, undefer(model.report))

    def _models(self) -> Rows:
        if self.selection.names_problems:
            return iter(())
        of_place = self.selection.of_place(models.Job.target, models.Job.created_at)
        wanted = models.Network.job_id.in_(select(models.Job.id).where(*of_place))
        return self._all(models.Network, [wanted])

    def _used(self, kind: str, found: Iterator[Row]) -> Iterator[Row]:
        """The rows that lines refer to; all of a whole store."""
        names, column = self.used[kind], _NAMED[kind]
        return (row for row in found if self.selection.is_whole or getattr(row, column) in names)

    def _all(
        self, model: type[Row], wanted: Sequence[ColumnElement[bool]], *options: ExecutableOption
    ) -> Iterator[Row]:
        """The rows of a table in the order of their numbers, some at a time."""
        number: Any = model.__table__.c.id
        last = 0
        while True:
            query = select(model).where(number > last, *wanted).options(*options)
            page = list(self.session.scalars(query.order_by(number).limit(ROWS_AT_ONCE)))
            if not page:
                return
            yield from page
            newest: Any = page[-1]
            last = newest.id
            self.session.expunge_all()
