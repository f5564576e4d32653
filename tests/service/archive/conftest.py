"""Stores of both kinds, filled and empty."""

from contextlib import ExitStack

import pytest

from tests.service.archive.stores import fill, opened_store


@pytest.fixture
def new_store(request, tmp_path, migrated_sqlite):
    """Makes an empty store in a database of a kind."""
    with ExitStack() as stack:
        made = []

        def make(kind="sqlite"):
            if kind == "sqlite":
                url = migrated_sqlite(tmp_path / f"store{len(made)}.db")
            else:
                url = request.getfixturevalue("migrated_postgresql")()
            made.append(stack.enter_context(opened_store(url)))
            return made[-1]

        yield make


@pytest.fixture
def filled(new_store):
    """An SQLite with one of everything that a store can have."""
    made = new_store()
    fill(made)
    return made
