"""The default database."""

import os
from pathlib import Path

from tilewise.service.errors import DatabaseError


def default_file() -> Path:
    """Return the SQLite file in the user's data folder; raise DatabaseError without one."""
    base = os.environ.get("XDG_DATA_HOME")
    try:
        data = Path(base) if base else Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise DatabaseError("this user has no home folder; set TILEWISE_DB") from error
    return data / "tilewise" / "tilewise.db"


def default_database() -> str:
    """Return the URL of the file; raise DatabaseError if its path is not text."""
    from sqlalchemy import URL  # the command line names the file where this is not installed

    file = default_file()
    try:
        return URL.create("sqlite", database=str(file)).render_as_string()
    except UnicodeEncodeError as error:
        raise DatabaseError(
            f"the folder of user data {str(file.parent.parent)!r} is not text in UTF-8; "
            "set TILEWISE_DB"
        ) from error
