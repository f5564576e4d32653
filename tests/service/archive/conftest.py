"""Stores of both kinds, filled and empty."""

import shutil
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


@pytest.fixture(scope="session")
def filled_once(tmp_path_factory, migrated_sqlite):
    """The file of an SQLite with one of everything that a store can have."""
    file = tmp_path_factory.mktemp("filled") / "store.db"
    with opened_store(migrated_sqlite(file)) as store:
        fill(store)
    return file


@pytest.fixture
def filled(filled_once, tmp_path):
    """A copy of that store."""
    with opened_store(f"sqlite:///{shutil.copyfile(filled_once, tmp_path / 'filled.db')}") as store:
        yield store
