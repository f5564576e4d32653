"""The schema version of the database, the version that the code needs, and upgrades.

Alembic's migrations are the only source of DDL.
"""

import functools
import logging
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, make_url, text
from sqlalchemy.orm import Session

from tilewise import migrations
from tilewise.service.db.driver_errors import ELSEWHERE, RAISED, UPGRADE, translate
from tilewise.service.db.session import make_engine, shown, write_connection
from tilewise.service.errors import PASSING, BusyError, DatabaseError, OutageError
from tilewise.service.faults import Faults

if TYPE_CHECKING:  # half as much again as all else that `tilewise show` loads
    from alembic.config import Config

HEAD = migrations.HEAD
VERSION_TABLE = "alembic_version"
MIB = 1024**2
LEAST_ROOM = 16 * MIB  # for the log of a few hundred trials, and for what folds it in
AWAY_PAUSE_S = 1.0  # between two looks at a server that is away

log = logging.getLogger(__name__)


def alembic_config(connection: Connection | None = None) -> "Config":
    """Return Alembic's configuration for the migrations of the package."""
    from alembic.config import Config

    folder = Path(migrations.__file__).parent
    made = Config()
    made.set_main_option("script_location", str(folder).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    return made


def current(connection: Connection) -> str | None:
    """Return the revision of the database, None if it is empty.

    Raises DatabaseError for tables that are not Tilewise's.
    """
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return None
    revision: str | None = None
    if VERSION_TABLE in tables:
        revision = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    if revision is None and tables - {VERSION_TABLE}:
        name = shown(connection.engine.url)
        raise DatabaseError(f"database {name} contains tables of another program; {ELSEWHERE}")
    return revision


def check(engine: Engine) -> None:
    """Raise DatabaseError unless the database has exactly the schema that this code needs."""
    with _connected(engine) as connection:
        _require(shown(engine.url), current(connection))


def check_session(session: Session) -> None:
    """Check the schema as `check`, in one query of an open session."""
    revision = session.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    _require(shown(session.get_bind().engine.url), revision)


def check_writable(engine: Engine) -> None:
    """Raise DatabaseError unless the database takes writes; the test write is rolled back."""
    # SQLite begins a writing transaction even where it may not write.
    touch = text(f"UPDATE {VERSION_TABLE} SET version_num = version_num")
    try:
        with write_connection(engine) as connection:
            connection.execute(touch)
            connection.rollback()
    except RAISED as error:
        raise translate(error, shown(engine.url)) from error


def check_room(engine: Engine) -> None:
    """Raise OutageError if the disk of an SQLite database has less than `LEAST_ROOM` bytes free.

    A write that is rolled back may not reach the disk, so only the file system can tell.
    """
    file = _sqlite_file(engine)
    if file is None:
        return
    free = shutil.disk_usage(file.parent).free
    if free < LEAST_ROOM:
        raise OutageError(
            f"database {shown(engine.url)} is on a full disk: {free / MIB:.1f} MiB are free and "
            f"{LEAST_ROOM // MIB} are needed; free some space"
        )


def upgrade(url: str) -> None:
    """Bring the database to this code's schema in one transaction; create an absent one.

    Raises DatabaseError if it is unreachable, read-only, newer than this code, or not Tilewise's.
    """
    from alembic import command

    # Rebuilding a table with foreign keys enforced would cascade into its children.
    engine = make_engine(url, foreign_keys=False)
    name = shown(engine.url)
    try:
        _make_folder(engine)
        with write_connection(engine) as connection:
            revision = current(connection)
            if revision is not None and not _is_known(revision):
                _require(name, revision)
            command.upgrade(alembic_config(connection), "head")
            _check_references(connection)
    except RAISED as error:
        raise translate(error, name) from error
    finally:
        engine.dispose()


def prepare(url: str) -> None:
    """Upgrade an empty database; raise DatabaseError for one of another version."""
    engine = make_engine(url)
    try:
        if _is_absent(engine):
            upgrade(url)
            return
        with _connected(engine) as connection:
            empty = current(connection) is None
        if empty:
            upgrade(url)
        check(engine)
    finally:
        engine.dispose()


def prepare_once_there(url: str, stopping: threading.Event) -> bool:
    """Call `prepare` once the server answers; return False if `stopping` is set by then.

    An SQLite file that cannot be opened has a wrong path, so it is not waited for.
    """
    faults, has_waited = Faults(log), False
    while not stopping.is_set():
        try:
            prepare(url)
        except PASSING as error:
            is_file = make_url(url).get_backend_name() == "sqlite"
            if is_file and not isinstance(error, BusyError):
                raise
            faults.tell("waiting for the database", error)
            has_waited = True
        else:
            if has_waited:
                log.info("the database is there")
            return not stopping.is_set()
        stopping.wait(AWAY_PAUSE_S)
    return False


def _require(name: str, revision: str | None) -> None:
    if revision == HEAD:
        return
    if revision is None:
        raise DatabaseError(f"database {name} has no schema yet; {UPGRADE}")
    if _is_known(revision):
        raise DatabaseError(
            f"database {name} has schema version {revision}, this tilewise needs {HEAD}; {UPGRADE}"
        )
    raise DatabaseError(
        f"database {name} has schema version {revision}, which this tilewise (schema {HEAD}) "
        f"does not know; install the tilewise that wrote it (pip install -U tilewise), "
        f"or {ELSEWHERE}"
    )


@functools.cache
def _is_known(revision: str) -> bool:
    from alembic.script import ScriptDirectory

    script = ScriptDirectory.from_config(alembic_config())
    return revision in {step.revision for step in script.walk_revisions()}


@contextmanager
def _connected(engine: Engine) -> Iterator[Connection]:
    """A connection whose driver's errors are translated; never makes the file."""
    if _is_absent(engine):
        raise DatabaseError(f"database {shown(engine.url)} does not exist; {UPGRADE}")
    try:
        with engine.connect() as connection:
            yield connection
    except RAISED as error:
        raise translate(error, shown(engine.url)) from error


def is_absent(url: str) -> bool:
    """Return whether `url` names a missing SQLite file; raise DatabaseError if it is invalid."""
    return _is_absent(make_engine(url))


def _sqlite_file(engine: Engine) -> Path | None:
    """The file of an SQLite database; None for a server or an SQLite URI."""
    name = engine.url.database
    if engine.dialect.name != "sqlite" or name is None or name.startswith("file:"):
        return None
    return Path(name)


def _is_absent(engine: Engine) -> bool:
    file = _sqlite_file(engine)
    try:
        return file is not None and not file.exists()
    except OSError as error:
        raise DatabaseError(
            f"database {shown(engine.url)} cannot be opened ({error.strerror}); {ELSEWHERE}"
        ) from error


def _make_folder(engine: Engine) -> None:
    file = _sqlite_file(engine)
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(
            f"database {shown(engine.url)}: its folder cannot be made ({error.strerror}); "
            f"{ELSEWHERE}"
        ) from error


def _check_references(connection: Connection) -> None:
    """Undo an upgrade that leaves dangling references, which SQLite did not watch."""
    if connection.dialect.name != "sqlite":
        return
    dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if dangling is not None:
        raise DatabaseError(
            f"database {shown(connection.engine.url)}: table {dangling[0]} refers to rows that "
            "do not exist, so it was left as it was; restore a copy"
        )
