"""Translate a driver's exception into one message that says how to fix the database."""

import sqlite3

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionError

from tilewise.service.errors import BusyError, DatabaseError, OutageError, UndoneError

UPGRADE = "run `tilewise db upgrade`"
ELSEWHERE = "point TILEWISE_DB (or --db) at another"

# What SQLAlchemy raises where the database fails, or where none of its connections came free.
RAISED = (DBAPIError, NoConnectionError)

_READ_ONLY_TRANSACTION = "25006"
_MISSING_OBJECT = ("42P01", "42703")
# Two transactions met, of which the server has undone one: a deadlock, or no serial order.
_UNDONE = ("40P01", "40001")
# Too many connections; a lock, a statement or an idle transaction that took too long.
_BUSY = (*_UNDONE, "53300", "55P03", "57014", "25P03")
_FULL = "53100"
# Classes of the SQL standard and of PostgreSQL (appendix A): connection, resources, the operator's
# intervention, the system.
_OUTAGES = ("08", "53", "57", "58")
_SQLITE_OUTAGES = (
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
)


def is_read_only(error: BaseException | None) -> bool:
    """Return whether SQLite refused because the database is read-only."""
    return isinstance(error, sqlite3.Error) and _sqlite_code(error) == sqlite3.SQLITE_READONLY


def is_busy(error: BaseException | None) -> bool:
    """Return whether the database refused because others use it, so that a retry may succeed."""
    if isinstance(error, sqlite3.Error):
        return _sqlite_code(error) == sqlite3.SQLITE_BUSY
    return _state(error) in _BUSY


def translate(error: SQLAlchemyError, database: str) -> DatabaseError:
    """Return the `DatabaseError` for one of `RAISED`.

    It is a `BusyError` if waiting helps, an `UndoneError` if it can be repeated at once, and an
    `OutageError` if it recovers once the database is back or writable. `database` is the URL
    without its password.
    """
    if not isinstance(error, DBAPIError):
        return BusyError(f"database {database}: every connection is in use; try again")
    cause = error.orig
    if is_busy(cause):
        kind: type[DatabaseError] = UndoneError if _state(cause) in _UNDONE else BusyError
    else:
        kind = OutageError if _is_outage(error) else DatabaseError
    if isinstance(cause, sqlite3.Error):
        return kind(f"database {database} {_sqlite_message(cause)}")
    return kind(f"database {database} {_server_message(error)}")


def _is_outage(error: DBAPIError) -> bool:
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return _sqlite_code(cause) in _SQLITE_OUTAGES
    state = _state(cause)
    return state == _READ_ONLY_TRANSACTION or _is_away(error) or (state or "")[:2] in _OUTAGES


def _is_away(error: DBAPIError) -> bool:
    """Whether no server answered; the driver then reports no state."""
    is_unanswered = isinstance(error, OperationalError) and _state(error.orig) is None
    return is_unanswered or error.connection_invalidated


def _state(error: BaseException | None) -> str | None:
    """A server's SQLSTATE, as psycopg and psycopg2 have it."""
    state: str | None = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state


def _sqlite_code(error: sqlite3.Error) -> int:
    """The primary result code; 0 for errors that the Python module made itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _sqlite_message(error: sqlite3.Error) -> str:
    messages = {
        sqlite3.SQLITE_READONLY: f"is read-only; make the file and its folder writable, "
        f"or {ELSEWHERE}",
        sqlite3.SQLITE_CANTOPEN: f"cannot be opened: it is absent, or in a read-only folder; "
        f"make the file and its folder writable, or {ELSEWHERE}",
        sqlite3.SQLITE_PERM: f"may not be accessed; change its permissions, or {ELSEWHERE}",
        sqlite3.SQLITE_NOTADB: f"is not an SQLite file; {ELSEWHERE}",
        sqlite3.SQLITE_CORRUPT: f"is damaged; restore a copy, or {ELSEWHERE}",
        sqlite3.SQLITE_BUSY: "is locked by another process; try again when it has finished",
        sqlite3.SQLITE_FULL: "is on a full disk; free some space",
        sqlite3.SQLITE_IOERR: f"cannot be read or written ({error}); look at its disk, its quota "
        f"and the limits of the process, or {ELSEWHERE}",
    }
    text = str(error)
    if text.startswith(("no such table", "no such column")) or "has no column" in text:
        return f"has another schema version ({text}); {UPGRADE}"
    return messages.get(_sqlite_code(error), f"failed: {text}")


def _server_message(error: DBAPIError) -> str:
    state = _state(error.orig)
    text = str(error.orig).strip().partition("\n")[0]
    if state == _READ_ONLY_TRANSACTION:
        return f"is read-only; {ELSEWHERE}"
    if state == _FULL:
        return f"is on a full disk ({text}); free some space"
    if state in _MISSING_OBJECT:
        return f"has another schema version ({text}); {UPGRADE}"
    if not is_busy(error.orig) and _is_away(error):
        return f"cannot be reached ({text}); see that it runs and lets this user in, or {ELSEWHERE}"
    return f"failed: {text}"
