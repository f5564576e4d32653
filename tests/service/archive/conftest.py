"""Stores of both kinds, filled and empty."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from service.db import Sessions, schema
from tests.service.archive.stores import fill, opened_store

NewStore = Callable[..., Sessions]


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An empty SQLite on the newest schema."""
    file = tmp_path_factory.mktemp("migrated") / "store.db"
    schema.upgrade(f"sqlite:///{file}")
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return file.read_bytes()


@pytest.fixture
def new_store(
    request: pytest.FixtureRequest, tmp_path: Path, migrated: bytes
) -> Iterator[NewStore]:
    """Makes an empty store in a database of a kind."""
    with ExitStack() as stack:
        made: list[Sessions] = []

        def make(kind: str = "sqlite") -> Sessions:
            if kind == "sqlite":
                file = tmp_path / f"store{len(made)}.db"
                file.write_bytes(migrated)
                url = f"sqlite:///{file}"
            else:
                url = request.getfixturevalue("migrated_postgresql")()
            made.append(stack.enter_context(opened_store(url)))
            return made[-1]

        yield make


@pytest.fixture
def filled(new_store: NewStore) -> Sessions:
    """An SQLite with one of everything that a store can have."""
    made = new_store()
    fill(made)
    return made
