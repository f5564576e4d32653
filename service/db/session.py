"""Engines and sessions: open the database, and read and write transactions."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from sqlite3 import Connection as SqliteConnection
from typing import Any
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from tilewise.kernels.quoting import quoted, without_password
from tilewise.service.db.base import SERVER_CLOCK
from tilewise.service.db.driver_errors import RAISED, is_busy, is_read_only, translate
from tilewise.service.errors import BusyError, DatabaseError

Sessions = sessionmaker[Session]

BUSY_TIMEOUT_S = 30.0
SYNCHRONOUS = "FULL"
"""A commit of SQLite returns once the disk has it, at milliseconds for each: what was acknowledged
outlives a loss of power. With NORMAL it outlives the process alone (sqlite.org/wal.html)."""

STATEMENT_S = 60.0
"""For how long a statement of the service or of a worker may take on a server."""

CLOCK_READ_AFTER_S = 60.0  # by which time two clocks are not apart by much
CONNECTIONS = 15


@dataclass(frozen=True)
class _Turns:
    """Who may write to an SQLite now, of the threads of this process.

    SQLite itself has who waits look again after pauses of up to a tenth of a second, in which the
    lock idles (sqlite3_busy_timeout).
    """

    patience_s: float
    lock: threading.Lock = field(default_factory=threading.Lock)


_TURNS: WeakKeyDictionary[Engine, _Turns] = WeakKeyDictionary()
_WAL_POLL_S = 0.02
_WRITES = "tilewise_writes"
_FORMS = "write sqlite:///FILE or postgresql+psycopg://HOST/NAME"
_DRIVERS = {"sqlite": ("", "pysqlite"), "postgresql": ("", "psycopg", "psycopg2")}
_LARGEST_PORT = 65535
# SQLAlchemy takes these for itself, and all others only where SQLite is given a URI of its own.
_SQLITE_OPTIONS = frozenset(
    ("timeout", "isolation_level", "detect_types", "check_same_thread", "cached_statements")
)


def make_engine(
    url: str,
    *,
    foreign_keys: bool = True,
    connections: int = CONNECTIONS,
    patience_s: float = BUSY_TIMEOUT_S,
    statement_s: float | None = None,
) -> Engine:
    """Return an engine for `url`; nothing is opened yet.

    `foreign_keys` is off only for migrations, in which SQLite rebuilds tables. Locks and free
    connections are waited for up to `patience_s`. A server ends statements and idle transactions
    after `statement_s`; None, for migrations and exports, sets no limit.

    Raises DatabaseError if it is no database URL, has no driver, or is a database in memory.
    """
    parsed = _parse(url)
    sqlite = parsed.get_backend_name() == "sqlite"
    if sqlite:
        options: dict[str, Any] = {"connect_args": {"timeout": patience_s}}
    else:
        options = _server_options(parsed, patience_s, statement_s)
    try:
        engine = create_engine(
            parsed,
            poolclass=QueuePool,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=patience_s,
            **options,
        )
    except ImportError as error:
        raise DatabaseError(
            f"database {shown(parsed)}: {error}; install tilewise[postgres], "
            "and write postgresql+psycopg://HOST/NAME"
        ) from error
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise DatabaseError(f"database {shown(parsed)}: {error}") from error
    if sqlite:
        _configure_sqlite(engine, foreign_keys=foreign_keys, patience_s=patience_s)
    else:
        event.listen(engine, "begin", _read_server_clock)
    return engine


def _read_server_clock(connection: Connection) -> None:
    """Read the server's clock now and then, at the start of a transaction."""
    if SERVER_CLOCK.age_s > CLOCK_READ_AFTER_S:
        SERVER_CLOCK.set(connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one())


def _server_options(url: URL, patience_s: float, statement_s: float | None) -> dict[str, Any]:
    """How long a server is waited for, as libpq has it: in whole seconds, two at least.

    A server that vanished without a word, as at a loss of power, is noticed by the keepalives of
    the kernel: within half a minute, whether or not something was sent to it.
    """
    limits = {"lock_timeout": patience_s}
    if statement_s is not None:
        limits["statement_timeout"] = statement_s
        limits["idle_in_transaction_session_timeout"] = statement_s
    ours = [f"-c {name}={round(1000 * s)}" for name, s in limits.items()]
    theirs = url.query.get("options", ())  # the last one counts
    given = {
        "connect_timeout": max(2, round(patience_s)),
        "options": " ".join([*ours, *([theirs] if isinstance(theirs, str) else theirs)]),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 4,
        "tcp_user_timeout": 30_000,
    }
    return {"pool_pre_ping": True, "connect_args": given}


def make_sessions(engine: Engine) -> Sessions:
    """Return a session factory whose objects stay readable after a commit."""
    return sessionmaker(engine, expire_on_commit=False)


def shown(url: URL) -> str:
    """Return the URL without its password, for messages."""
    return url.render_as_string(hide_password=True)


@contextmanager
def reading(sessions: Sessions) -> Iterator[Session]:
    """Open a session for reading; raise DatabaseError with a way out."""
    with sessions() as session, _translated(session):
        yield session


@contextmanager
def writing(sessions: Sessions) -> Iterator[Session]:
    """Open a transaction that commits at the end and rolls back on any exception.

    On SQLite it takes the write lock first, so that what it reads is still true when it writes.
    Raises DatabaseError with a way out.
    """
    with (
        _turn(sessions.kw["bind"]),
        sessions(execution_options={_WRITES: True}) as session,
        _translated(session),
    ):
        session.connection()
        yield session
        session.commit()


@contextmanager
def _turn(engine: Engine) -> Iterator[None]:
    """The turn of this thread to write, where threads take turns."""
    turns = _TURNS.get(engine)
    if turns is None:
        yield
        return
    if not turns.lock.acquire(timeout=turns.patience_s):
        raise BusyError(
            f"database {shown(engine.url)}: another process holds the write lock; retry later"
        )
    try:
        yield
    finally:
        turns.lock.release()


@contextmanager
def write_connection(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in a transaction, for migrations."""
    with engine.connect() as connection:
        connection.execution_options(**{_WRITES: True})
        connection.begin()
        yield connection
        connection.commit()


@contextmanager
def _translated(session: Session) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except RAISED as error:
        url = session.get_bind().engine.url
        raise translate(error, shown(url)) from error


def _parse(url: str) -> URL:
    try:
        url.encode()
        parsed = make_url(url)
        (parsed.host or "").encode("idna")
    except (ArgumentError, ValueError) as error:
        raise DatabaseError(
            f"{quoted(without_password(url))} is not a database URL; {_FORMS}"
        ) from error
    backend, _, driver = parsed.drivername.partition("+")
    if driver not in _DRIVERS.get(backend, ()):
        raise DatabaseError(
            f"database {shown(parsed)}: {parsed.drivername} is not supported; {_FORMS}"
        )
    if parsed.port is not None and not 0 < parsed.port <= _LARGEST_PORT:
        raise DatabaseError(
            f"database {shown(parsed)}: port={parsed.port} is out of range; "
            f"give 1 to {_LARGEST_PORT}"
        )
    if "\0" in unquote(url):
        raise DatabaseError(f"database {shown(parsed)}: a name cannot hold the character NUL")
    if backend == "sqlite":
        _check_sqlite(parsed)
    return parsed


def _check_sqlite(url: URL) -> None:
    """Refuse what would be opened as something else than what is written."""
    memory = url.database in (None, "", ":memory:") or "memory" in url.query.get("mode", ())
    if memory or (url.database or "").startswith("file::memory:"):
        raise DatabaseError(
            f"database {shown(url)}: worker processes cannot see an in-memory database; "
            "write sqlite:///FILE"
        )
    if "uri" not in url.query and (ignored := set(url.query) - _SQLITE_OPTIONS):
        raise DatabaseError(
            f"database {shown(url)}: SQLite would ignore {', '.join(sorted(ignored))}; "
            "write sqlite:///file:FILE?uri=true&..."
        )


def _use_wal(connection: SqliteConnection, patience_s: float) -> None:
    """Switch to the write-ahead log, once no other process holds the database.

    SQLite does not wait out the busy timeout for the locks of this switch, since they could
    wait for each other (sqlite.org/wal.html, section 3.3), so the wait is made here.
    """
    end = time.monotonic() + patience_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except connection.OperationalError as error:
            if not is_busy(error) or time.monotonic() > end:
                raise
        time.sleep(_WAL_POLL_S)


def _configure_sqlite(engine: Engine, *, foreign_keys: bool, patience_s: float) -> None:
    def on_connect(connection: SqliteConnection, _entry: ConnectionPoolEntry) -> None:
        # The driver must not begin transactions of its own: it would begin none before
        # reads and DDL, and `on_begin` decides which kind.
        connection.isolation_level = None
        # What is no UTF-8 is marked, or one such row would stop its table.
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")
        try:
            _use_wal(connection, patience_s)
        except connection.OperationalError as error:
            if not is_read_only(error):  # reading needs no journal
                raise
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")

    def on_begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    _TURNS[engine] = _Turns(patience_s)
