"""A driver's exception into one message that says how to mend the database."""

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionError

from service.errors import BusyError, DatabaseError

UPGRADE = "run `tilewise db upgrade`"
ELSEWHERE = "point TILEWISE_DB (or --db) at another"

# What SQLAlchemy raises where the database fails, or where none of its connections came free.
RAISED = (DBAPIError, NoConnectionError)

_READ_ONLY_TRANSACTION = "25006"
_MISSING_OBJECT = ("42P01", "42703")
# Too many connections, a deadlock, a lock or a statement that took too long.
_BUSY = ("53300", "40P01", "55P03", "57014")


def is_read_only(error: BaseException | None) -> bool:
    """Whether SQLite refused because it may only read."""
    return isinstance(error, sqlite3.Error) and _sqlite_code(error) == sqlite3.SQLITE_READONLY


def is_busy(error: BaseException | None) -> bool:
    """Whether the database refused for what others do with it, which passes."""
    if isinstance(error, sqlite3.Error):
        return _sqlite_code(error) == sqlite3.SQLITE_BUSY
    return getattr(error, "sqlstate", None) in _BUSY


def translate(error: SQLAlchemyError, database: str) -> DatabaseError:
    """The `DatabaseError` that stands for one of `RAISED`; a `BusyError` where waiting helps.

    Args:
        error: what SQLAlchemy raised.
        database: the database's URL, without its password.
    """
    if not isinstance(error, DBAPIError):
        return BusyError(f"database {database}: every connection is in use; try again")
    cause = error.orig
    message = _sqlite_message(cause) if isinstance(cause, sqlite3.Error) else _server_message(cause)
    kind = BusyError if is_busy(cause) else DatabaseError
    return kind(f"database {database} {message}")


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
    }
    text = str(error)
    if text.startswith(("no such table", "no such column")) or "has no column" in text:
        return f"has another schema version ({text}); {UPGRADE}"
    return messages.get(_sqlite_code(error), f"failed: {text}")


def _server_message(error: BaseException | None) -> str:
    state = getattr(error, "sqlstate", None)
    text = str(error).strip().partition("\n")[0]
    if state == _READ_ONLY_TRANSACTION:
        return f"is read-only; {ELSEWHERE}"
    if state in _MISSING_OBJECT:
        return f"has another schema version ({text}); {UPGRADE}"
    return f"failed: {text}"
