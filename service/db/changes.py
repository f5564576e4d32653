"""Whether anything was committed to the database since it was last looked at."""

import sqlite3
from contextlib import suppress

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from tilewise.service.db.session import make_engine


class Changes:
    """Numbers the states of a database, as far as that costs microseconds.

    SQLite counts, for a connection, the commits of all others (sqlite.org/pragma.html,
    `data_version`). This one never writes, so it sees those of this process and of any other.
    A server is a round trip away, so it is not asked.

    Args:
        url: of the database.
    """

    def __init__(self, url: str) -> None:
        self._engine: Engine = make_engine(url, connections=1, patience_s=0.0)
        self._connection: PoolProxiedConnection | None = None
        if self._engine.dialect.name == "sqlite":
            with suppress(DBAPIError):
                self._connection = self._engine.raw_connection()

    def number(self) -> int | None:
        """A number that differs after every commit; None where it cannot be told."""
        if self._connection is None:
            return None
        try:
            row = self._connection.cursor().execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return None
        return int(row[0])

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._engine.dispose()
