"""Import: check an archive and merge it into a database."""

import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from sqlite3 import Error as SqliteError
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import parse_any
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import parse_target
from tilewise.kernels.target.features import UNKNOWN, differences
from tilewise.service.archive import lines
from tilewise.service.archive.container import LeftError, Reader, describe, opened
from tilewise.service.archive.fields import Line
from tilewise.service.archive.merging import ACTIVE, ELSEWHERE, Merged, Merger, proof_row
from tilewise.service.archive.rows import travelling
from tilewise.service.db import checked
from tilewise.service.db.session import Sessions, make_engine, make_sessions
from tilewise.service.errors import ArchiveError, BusyError, OutageError
from tilewise.service.results import integrity
from tilewise.service.results.stored import ResultKey

SINCE = 3
"""The format whose targets name features."""

Differences = tuple[str, ...]
_UNKNOWN: Differences = (UNKNOWN,)


class TargetFeatures:
    """Complete the targets of an archive of format `archive`, once its machines were read."""

    def __init__(self, archive: int) -> None:
        self._is_old = archive < SINCE
        self._machines: dict[str, tuple[str, Differences]] = {}

    def look_at(self, line: Line) -> None:
        """Record the features of a line's machine."""
        if isinstance(line, lines.MachineLine):
            found = differences(line.cpu, line.features) if line.features else _UNKNOWN
            self._machines[line.host] = line.cpu, found

    def completed(self, line: Line) -> Line:
        """Return a line whose target names features, with the digests that follow."""
        if not self._is_old or not isinstance(
            line, lines.JobLine | lines.ScheduleLine | lines.ModelLine
        ):
            return line
        named = parse_target(line.target)
        if isinstance(line, lines.ModelLine):
            found = self._shared(named.cpu)
        else:
            cpu, known = self._machines.get(line.host or "", ("", _UNKNOWN))
            found = known if cpu == named.cpu else _UNKNOWN
        if isinstance(line, lines.JobLine) and found == _UNKNOWN and line.state in ACTIVE:
            found = self._shared(named.cpu, ())
        made = line.model_copy(update={"target": replace(named, differences=found).canonical})
        if not isinstance(made, lines.ScheduleLine):
            return made
        digests = (integrity.proof_digest(work_of(made), proof_row(one)) for one in made.proofs)
        pairs = zip(made.proofs, digests, strict=True)
        proofs = [proof.model_copy(update={"digest": digest}) for proof, digest in pairs]
        return made.model_copy(update={"proofs": proofs})

    def of_report(self, report: dict[str, Any]) -> str:
        """Return the target of a suite's report, whose own text stays."""
        target: str = report["machine"]["target"]
        if not self._is_old:
            return target
        named = parse_target(target)
        return replace(named, differences=self._shared(named.cpu)).canonical

    def _shared(self, cpu: str, otherwise: Differences = _UNKNOWN) -> Differences:
        """The differences that all machines of a processor's name share, where they are known."""
        found = {found for name, found in self._machines.values() if name == cpu}
        return found.pop() if len(found) == 1 and _UNKNOWN not in found else otherwise


_NAMED_BY: dict[type[Line], str] = {
    lines.ProblemLine: "problem",
    lines.ToolchainLine: "toolchain",
    lines.MachineLine: "host",
    lines.JobLine: "job",
}
_REFERS_BY: dict[type[Line], tuple[str, ...]] = {
    lines.JobLine: ("problem", "toolchain"),
    lines.ScheduleLine: ("problem", "toolchain", "host", "job"),
    lines.PastLine: ("problem", "toolchain", "host", "job"),
    lines.ModelLine: ("toolchain",),
    lines.RangeLine: ("toolchain", "host"),
}


class Checks:
    """Check the lines of an archive in order."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, int]] = {name: {} for name in _NAMED_BY.values()}
        self._last: tuple[int, int] = (-1, -1)

    def look_at(self, line: Line) -> None:
        """Check the next line.

        Raises ArchiveError if it refers to no line before it, is repeated, misplaced, or was
        changed.
        """
        if isinstance(line, lines.TrialLine):
            self._check_place(line)
        elif isinstance(line, lines.ScheduleLine | lines.RangeLine):
            _check_result(line)
        for kind in _REFERS_BY.get(type(line), ()):
            name = getattr(line, kind)
            if name not in self._names[kind]:
                raise ArchiveError(f"it refers to {quoted(name)}, which is not in the archive")
        named = _NAMED_BY.get(type(line))
        if named is not None:
            names = self._names[named]
            if isinstance(line, lines.JobLine) and line.job in names:
                raise ArchiveError("the job is in the archive twice")
            names.setdefault(getattr(line, named), len(names))

    def _check_place(self, line: lines.TrialLine) -> None:
        place = (self._names["job"].get(line.job, -1), line.number)
        if place[0] < 0 or place <= self._last:
            raise ArchiveError("its job is not in the archive, or it is not in the jobs' order")
        self._last = place


def _check_result(line: lines.ScheduleLine | lines.RangeLine) -> None:
    work, job = work_of(line), None if isinstance(line, lines.RangeLine) else line.job
    if travelling(work, line.model_dump(exclude=ELSEWHERE), job) != line.digest:
        raise ArchiveError("its values do not have its digest")
    for proof in () if isinstance(line, lines.RangeLine) else line.proofs:
        if not integrity.is_proof_whole(work, proof_row(proof)):
            raise ArchiveError("a proof of it is not what was proven")


def work_of(line: lines.ScheduleLine | lines.RangeLine) -> ResultKey:
    """Return what the result of a line is of."""
    key = parse_any(line.problem).key
    return ResultKey(key, line.problem, line.target, line.toolchain, line.cache)


# Any number; two imports of one archive at once would both find none of it there.
ADVISORY_LOCK = 7_445_002

PIECE = 4000
"""What a transaction takes in, in trials: some tenths of a second."""

WEIGHTS: dict[type[Line], int] = {lines.TrialLine: 1, lines.ScheduleLine: 20}
OTHERS_WEIGHT = 8

PAUSE_S = 0.12
"""Between two transactions on SQLite; who waits for its lock looks every tenth of a second."""

LEFT = "what was taken in before stays; import it again, which takes in the rest"

Begin = Callable[[], AbstractContextManager[Session]]
Places = Collection[tuple[str, str]]


def restore(
    sessions: Sessions, path: Path, *, resume: Places | None = None, dry_run: bool = False
) -> Merged:
    """Merge an archive into a store, which keeps all that it has.

    Importing twice changes nothing. The whole archive is checked first. It is then written in
    several transactions, so that others can write in between; the next import completes one that
    was interrupted. With `resume`, the targets that this machine serves with their toolchains,
    unfinished searches are requested again; `dry_run` only reports.

    Raises ArchiveError if the file is none or was changed, BusyError if another process wrote the
    same rows meanwhile.
    """
    with opened(path) as archive:
        features = TargetFeatures(archive.manifest.format)
        for line in checked_lines(archive):
            features.look_at(line)
        written_at = archive.manifest.created_at
        merger = Merger(written_at, features.completed, features.of_report)
        with _begin(sessions, is_real=not dry_run) as begin:
            _merge(begin, archive, merger, resume=resume)
    return merger.merged


def _merge(begin: Begin, archive: Reader, merger: Merger, *, resume: Places | None) -> None:
    try:
        for piece in _pieces(archive):
            with begin() as session:
                merger.take(session, piece)
            if session.get_bind().dialect.name == "sqlite":
                time.sleep(PAUSE_S)
        if resume is not None:
            with begin() as session:
                merger.resume(session, resume)
    except ArchiveError as error:
        raise LeftError(f"{error}; {LEFT}") from error
    except IntegrityError as error:
        raise BusyError(f"another process wrote the same rows to the database; {LEFT}") from error


def _pieces(archive: Reader) -> Iterator[list[Line]]:
    """The lines, as many at a time as one transaction takes in."""
    piece: list[Line] = []
    weight = 0
    for _, line in read_lines(archive):
        piece.append(line)
        weight += WEIGHTS.get(type(line), OTHERS_WEIGHT)
        if weight >= PIECE:
            yield piece
            piece, weight = [], 0
    if piece:
        yield piece


def read_lines(archive: Reader) -> Iterator[tuple[str, Line]]:
    """Yield each line with its place; errors name the member and the line."""
    members = archive.manifest.members
    for name, kind in lines.MEMBERS.items():
        if name not in members:  # of a format that came later
            continue
        for number, content in archive.lines(name):
            place = f"{name} line {number}"
            with _placed(place):
                line = kind.model_validate_json(content)
            yield place, line


def checked_lines(archive: Reader) -> Iterator[Line]:
    """Yield each line once it was checked with those before it; raise ArchiveError."""
    checks = Checks()
    for place, line in read_lines(archive):
        with _placed(place):
            checks.look_at(line)
        yield line


@contextmanager
def _placed(place: str) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        raise ArchiveError(f"{place}: {describe(error)}") from error
    except (ArchiveError, KernelsError) as error:
        raise ArchiveError(f"{place}: {error}") from error


@contextmanager
def _begin(sessions: Sessions, *, is_real: bool) -> Iterator[Begin]:
    """What begins a transaction of an import; of one that is not real nothing is left."""
    if is_real:
        yield lambda: _transaction(sessions)
    elif sessions.kw["bind"].dialect.name == "sqlite":
        with _copied(sessions.kw["bind"]) as copy:
            yield lambda: _transaction(copy)
    else:
        with _transaction(sessions) as session:
            yield lambda: nullcontext(session)
            session.rollback()


@contextmanager
def _transaction(sessions: Sessions) -> Iterator[Session]:
    with checked.writing(sessions) as session:
        if session.get_bind().dialect.name == "postgresql":
            session.execute(text(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"))
        yield session


@contextmanager
def _copied(engine: Engine) -> Iterator[Sessions]:
    """A copy of an SQLite in the same folder, so that writes do not lock the original."""
    folder = Path(engine.url.database or "").absolute().parent
    with ExitStack() as stack:
        try:
            held = tempfile.TemporaryDirectory(prefix=".dry-run-", dir=folder)
            file = Path(stack.enter_context(held)) / "copy.db"
            with closing(engine.raw_connection()) as connection:
                connection.cursor().execute("VACUUM INTO ?", (str(file),))
        except (OSError, SqliteError) as error:
            raise OutageError(
                f"a dry run takes a copy of the database, which cannot be had in {folder}: {error}"
            ) from error
        copy = make_engine(f"sqlite:///{file}")
        stack.callback(copy.dispose)
        yield make_sessions(copy)
