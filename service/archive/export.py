"""Export: a selection of a store, or all of it, as an archive."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session, joinedload, undefer
from sqlalchemy.orm.interfaces import ORMOption as ExecutableOption
from sqlalchemy.sql.elements import SQLCoreOperations

from tilewise.service.archive import rows
from tilewise.service.archive.container import FORMAT, ArchiveWriter, Manifest, written
from tilewise.service.archive.fields import Line
from tilewise.service.archive.lines import MEMBERS
from tilewise.service.archive.rows import RefusedRow
from tilewise.service.db import checked, models, schema
from tilewise.service.db.base import Base, now
from tilewise.service.db.session import Sessions
from tilewise.service.errors import NotFoundError


@dataclass(frozen=True)
class Selection:
    """Which results go into an archive; an empty field does not select.

    `since` keeps searches that were requested or ended, and results that were stored, from then on.
    `best` keeps the results that are served, each with its job and the trial that found it.
    """

    problems: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    since: datetime | None = None
    best: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all of the store is selected."""
        return self == Selection()

    @property
    def names_problems(self) -> bool:
        """Whether results of problems are selected, which neither suites nor models are."""
        return bool(self.problems or self.kinds or self.dtypes or self.best)

    def told(self) -> dict[str, list[str]]:
        """What was asked for, by option."""
        since = [] if self.since is None else [self.since.isoformat()]
        asked = {
            "problem": list(self.problems),
            "kind": list(self.kinds),
            "dtype": list(self.dtypes),
            "target": list(self.targets),
            "since": since,
            "best": ["yes"] if self.best else [],
        }
        return {name: values for name, values in asked.items() if values}

    def jobs(self) -> list[ColumnElement[bool]]:
        """Conditions on jobs that are joined with their problems."""
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
        """Conditions on stored or past results that are joined with their problems."""
        found = self._of_work(model.target)
        if self.since is not None:
            found.append(model.created_at >= self.since)
        return found

    def of_place(
        self, target: SQLCoreOperations[str], created: SQLCoreOperations[datetime]
    ) -> list[ColumnElement[bool]]:
        """Conditions on what belongs to a target and a moment, and to no one problem."""
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

_JOBLESS = RefusedRow("the job that found it is not there")


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
        if not selection.is_whole:
            _require_anything(session, selection)
        with written(path) as file:
            return _Export(session, selection, ArchiveWriter(file)).run(written_by)


def _require_anything(session: Session, selection: Selection) -> None:
    """Raise where neither searches nor results are selected, nor anything else."""
    of_results = [
        select(model.id).join(model.problem).where(*selection.schedules(model))
        for model in (models.Schedule, models.TunedRange)
    ]
    searches = select(models.Job.id).join(models.Job.problem).where(*selection.jobs())
    if not selection.best:
        of_results.append(searches.where(models.Job.kind == "tune"))
    numbers = (session.scalar(query.limit(1)) for query in of_results)
    found = next((number for number in numbers if number is not None), None)
    if found is None and not selection.names_problems:
        suite, of = models.SuiteReport, models.Job
        reports = select(suite.id).where(*selection.of_place(suite.target, suite.created_at))
        networks = select(models.Network.id).join(models.Network.job)
        networks = networks.where(*selection.of_place(of.target, of.created_at))
        found = session.scalar(reports.limit(1)) or session.scalar(networks.limit(1))
    if found is None:
        asked = " ".join(f"--{k} {' '.join(values)}" for k, values in selection.told().items())
        raise NotFoundError(f"nothing is stored that {asked} selects; no archive was written")


@dataclass
class _Export:
    """One export.

    `jobs` maps the numbers of written jobs to names; `used` collects the problems, toolchains and
    hosts that the lines refer to.
    """

    session: Session
    selection: Selection
    writer: ArchiveWriter
    left_out: Counter[str] = field(default_factory=Counter)
    jobs: dict[int, str] = field(default_factory=dict)
    used: dict[str, set[str]] = field(
        default_factory=lambda: {"problem": set(), "toolchain": set(), "host": set()}
    )

    def run(self, written_by: str) -> Manifest:
        """Write every member, and the manifest."""
        members = {
            "jobs.jsonl": self._jobs,
            "trials.jsonl": self._trials,
            "schedules.jsonl": self._schedules,
            "history.jsonl": self._history,
            "suites.jsonl": self._suites,
            "models.jsonl": self._models,
            "ranges.jsonl": self._ranges,
            # What the others refer to is known when they are written.
            "problems.jsonl": self._problems,
            "toolchains.jsonl": self._toolchains,
            "machines.jsonl": self._machines,
        }
        for name, lines in members.items():
            with self.writer.member(name) as add:
                for line in lines():
                    if isinstance(line, RefusedRow):
                        self.left_out[name] += 1
                    else:
                        self._note(line)
                        add(rows.text_of(line))
        manifest = Manifest(
            format=FORMAT,
            written_by=written_by,
            db_schema=schema.HEAD,
            created_at=now(),
            selection=self.selection.told(),
            left_out=dict(self.left_out),
            members={name: self.writer.members[name] for name in MEMBERS},
        )
        self.writer.close(manifest)
        return manifest

    def _note(self, line: Line) -> None:
        for kind, names in self.used.items():
            name = getattr(line, kind, None)
            if name is not None:
                names.add(name)

    def _jobs(self) -> Iterator[Line | RefusedRow]:
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
        names: set[str] = set()
        wanted = [models.Job.kind == "tune"]
        if not self.selection.is_whole:
            wanted.append(or_(*map(models.Job.id.in_, chosen)))
        for row in self._all(models.Job, wanted):
            line = rows.job_line(row)
            if not isinstance(line, RefusedRow):
                if line.job in names:
                    line = RefusedRow("another job has its name")
                else:
                    self.jobs[row.id] = line.job
                    names.add(line.job)
            yield line

    def _trials(self) -> Iterator[Line | RefusedRow]:
        columns = models.Trial.__table__.c
        for number, name in self.jobs.items():
            query = select(*columns).where(columns.job_id == number).order_by(columns.number)
            if self.selection.best:
                found = select(models.Schedule.hash).where(models.Schedule.job_id == number)
                query = query.where(columns.hash.in_(found))
            for row in self.session.execute(query.execution_options(yield_per=ROWS_AT_ONCE)):
                yield rows.trial_line(row, name)

    def _schedules(self) -> Iterator[Line | RefusedRow]:
        for row in self._results(models.Schedule):
            name = self.jobs.get(row.job_id)
            yield (
                _JOBLESS
                if name is None
                else rows.schedule_line(self.session, row, name, self._proofs(row))
            )

    def _history(self) -> Iterator[Line | RefusedRow]:
        for row in () if self.selection.best else self._results(models.PastSchedule):
            name = self.jobs.get(row.job_id)
            yield _JOBLESS if name is None else rows.past_line(row, name)

    def _results(self, model: type[Result]) -> Iterator[Result]:
        """The stored or the past results that are selected."""
        chosen = select(model.id).join(model.problem).where(*self.selection.schedules(model))
        wanted = [] if self.selection.is_whole else [model.id.in_(chosen)]
        yield from self._all(model, wanted, joinedload(model.machine), joinedload(model.job))

    def _proofs(self, schedule: models.Schedule) -> list[models.Proof]:
        query = (
            select(models.Proof)
            .options(joinedload(models.Proof.script))
            .where(models.Proof.schedule_id == schedule.id)
            .order_by(models.Proof.id)
        )
        return list(self.session.scalars(query))

    def _suites(self) -> Iterator[Line | RefusedRow]:
        model = models.SuiteReport
        if not self.selection.names_problems:
            wanted = self.selection.of_place(model.target, model.created_at)
            yield from map(rows.suite_line, self._all(model, wanted, undefer(model.report)))

    def _models(self) -> Iterator[Line | RefusedRow]:
        model = models.Network
        if not self.selection.names_problems:
            of_place = self.selection.of_place(models.Job.target, models.Job.created_at)
            wanted = model.job_id.in_(select(models.Job.id).where(*of_place))
            yield from map(rows.model_line, self._all(model, [wanted]))

    def _ranges(self) -> Iterator[Line | RefusedRow]:
        return map(rows.range_line, self._results(models.TunedRange))

    def _problems(self) -> Iterator[Line | RefusedRow]:
        ranges = select(models.Job.problem_id).where(models.Job.kind == "range")
        for row in self._all(models.Problem, [models.Problem.id.not_in(ranges)]):
            if self.selection.is_whole or row.canonical in self.used["problem"]:
                yield rows.problem_line(row)

    def _toolchains(self) -> Iterator[Line | RefusedRow]:
        for row in self._all(models.Toolchain, []):
            if self.selection.is_whole or row.identity in self.used["toolchain"]:
                yield rows.toolchain_line(row)

    def _machines(self) -> Iterator[Line | RefusedRow]:
        for row in self._all(models.Machine, []):
            if self.selection.is_whole or row.host in self.used["host"]:
                yield rows.machine_line(row)

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
