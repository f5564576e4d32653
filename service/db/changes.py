"""Detect commits to the database since the last check."""

import sqlite3
from contextlib import suppress

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from tilewise.service.db.session import make_engine


class Changes:
    """Number the states of a database, where that takes microseconds only.

    SQLite counts the commits of all other connections (sqlite.org/pragma.html, `data_version`).
    This connection never writes, so it sees all of them. A server is not queried, since that is
    a round trip.
    """

    def __init__(self, url: str) -> None:
        self._engine: Engine = make_engine(url, connections=1, patience_s=0.0)
        self._connection: PoolProxiedConnection | None = None
        if self._engine.dialect.name == "sqlite":
            with suppress(DBAPIError):
                self._connection = self._engine.raw_connection()

    def number(self) -> int | None:
        """Return a number that changes with every commit; None if there is none."""
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
