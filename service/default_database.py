"""Where results are stored unless somebody says otherwise."""

import os
from pathlib import Path

from sqlalchemy import URL

from service.errors import DatabaseError


def default_database() -> str:
    """URL of the SQLite file in the user's data folder.

    Raises:
        DatabaseError: there is no such folder, or its name is not text.
    """
    base = os.environ.get("XDG_DATA_HOME")
    try:
        data = Path(base) if base else Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise DatabaseError("this user has no home folder; set TILEWISE_DB") from error
    file = data / "tilewise" / "tilewise.db"
    try:
        return URL.create("sqlite", database=str(file)).render_as_string()
    except UnicodeEncodeError as error:
        raise DatabaseError(
            f"the folder of user data {str(data)!r} is not text in UTF-8; set TILEWISE_DB"
        ) from error
