"""An archive, taken into a store in pieces."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from sqlite3 import Error as SqliteError

from pydantic import ValidationError
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from tilewise.kernels.errors import KernelsError
from tilewise.service.archive.container import LeftError, Reader, opened
from tilewise.service.archive.fields import Line
from tilewise.service.archive.lines import MEMBERS, ScheduleLine, TrialLine
from tilewise.service.archive.manifest import said
from tilewise.service.archive.merging.checks import Checks
from tilewise.service.archive.merging.features import Features
from tilewise.service.archive.merging.merged import Merged
from tilewise.service.archive.merging.taking import Taking
from tilewise.service.db import checked
from tilewise.service.db.session import Sessions, make_engine, make_sessions
from tilewise.service.errors import ArchiveError, BusyError, OutageError

# Any number; two imports of one archive at once would both find none of it there.
ADVISORY_LOCK = 7_445_002

PIECE = 4000
"""What a transaction takes in, in trials: some tenths of a second."""

WEIGHTS: dict[type[Line], int] = {TrialLine: 1, ScheduleLine: 20}
OTHERS_WEIGHT = 8

PAUSE_S = 0.12
"""Between two transactions on SQLite; who waits for its lock looks every tenth of a second."""

LEFT = "what was taken in before stays; import it again, which takes in the rest"

Begin = Callable[[], AbstractContextManager[Session]]


def restore(
    sessions: Sessions, path: Path, *, resume: bool = False, dry_run: bool = False
) -> Merged:
    """Take an archive into a store, which keeps all that it has; what was done.

    The same archive twice is as good as once. The whole archive is read and checked before
    anything is written. It is written in pieces, each a transaction: others write in between, and
    an import that ended early is completed by the next one.

    Args:
        sessions: of the database.
        path: of the archive.
        resume: whether to ask anew for the searches that had not ended.
        dry_run: only say what would be done.

    Raises:
        ArchiveError: it is none, or not what was written; nothing is changed, unless the file has
            changed meanwhile.
        BusyError: somebody wrote the same rows meanwhile.
    """
    with opened(path) as archive:
        checks, features = Checks(), Features(archive.manifest.format)
        for place, line in _lines(archive):
            with _placed(place):
                checks.look_at(line)
            features.look_at(line)
        taking = Taking(archive.manifest.created_at, features)
        with _begin(sessions, is_real=not dry_run) as begin:
            _take(begin, archive, taking, resume=resume)
    return taking.merged


def _take(begin: Begin, archive: Reader, taking: Taking, *, resume: bool) -> None:
    try:
        for piece in _pieces(archive):
            with begin() as session:
                taking.take(session, piece)
            if session.get_bind().dialect.name == "sqlite":
                time.sleep(PAUSE_S)
        if resume:
            with begin() as session:
                taking.resume(session)
    except ArchiveError as error:
        raise LeftError(f"{error}; {LEFT}") from error
    except IntegrityError as error:
        raise BusyError(
            f"somebody wrote the same rows to the database meanwhile; {LEFT}"
        ) from error


def _pieces(archive: Reader) -> Iterator[list[Line]]:
    """The lines, as many at a time as one transaction takes in."""
    piece: list[Line] = []
    weight = 0
    for _, line in _lines(archive):
        piece.append(line)
        weight += WEIGHTS.get(type(line), OTHERS_WEIGHT)
        if weight >= PIECE:
            yield piece
            piece, weight = [], 0
    if piece:
        yield piece


def _lines(archive: Reader) -> Iterator[tuple[str, Line]]:
    """Every line with its place; what is wrong with one names the member and the line."""
    members = archive.manifest.members
    for name, kind in MEMBERS.items():
        if name not in members:  # of a format that came later
            continue
        for number, told in archive.lines(name):
            place = f"{name} line {number}"
            with _placed(place):
                line = kind.model_validate_json(told)
            yield place, line


@contextmanager
def _placed(place: str) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        raise ArchiveError(f"{place}: {said(error)}") from error
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
    """A copy of an SQLite, beside it, that is not locked for others while it is written to."""
    beside = Path(engine.url.database or "").absolute().parent
    with ExitStack() as stack:
        try:
            held = tempfile.TemporaryDirectory(prefix=".dry-run-", dir=beside)
            file = Path(stack.enter_context(held)) / "copy.db"
            with closing(engine.raw_connection()) as connection:
                connection.cursor().execute("VACUUM INTO ?", (str(file),))
        except (OSError, SqliteError) as error:
            raise OutageError(
                f"a dry run takes a copy of the database, which cannot be had in {beside}: {error}"
            ) from error
        copy = make_engine(f"sqlite:///{file}")
        stack.callback(copy.dispose)
        yield make_sessions(copy)
