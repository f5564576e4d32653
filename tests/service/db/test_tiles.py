import json
from dataclasses import replace

import pytest
from sqlalchemy import select, text

from tests.service import fakes
from tilewise.search.space.points import TilePoint
from tilewise.service.api.documents import trial_json
from tilewise.service.db import make_engine, models, reading
from tilewise.service.jobs.trial_store import SqlTrialStore

SWEEP = TilePoint(1, 4, "sweep", depth=8, streams=8)
FIELDS = {
    "rows": 1, "vectors": 4, "kind": "sweep", "partial_sums": 0, "depth": 8, "streams": 8,
}  # fmt: skip
POINTS = (
    {"tile": TilePoint(6, 4), "unroll": 2},
    {"tile": TilePoint(2, 3, "split", partial_sums=4), "pack_b": True},
    {"tile": SWEEP, "outer": "cols"},
    {"tile": TilePoint(12, 32, "iree"), "inner": "rows"},
    {"tile": "2x2w8e", "unroll": 1},
    {"unroll": 4},
)
TEXTS = ["6x4", "2x3s4", "1x4w8i8", "12x32", "2x2w8e", None]

pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def store(sessions, submit):
    store = SqlTrialStore(sessions, submit(trials=10))
    for number, point in enumerate(POINTS):
        store.add(replace(fakes.trial(number), params=point))
    return store


def written(url, query="SELECT CAST(params AS TEXT) FROM trials ORDER BY number"):
    engine = make_engine(url)
    with engine.connect() as connection:
        found = connection.execute(text(query)).scalars().all()
    engine.dispose()
    return [json.loads(params) for params in found]


def change(url, number, params):
    engine = make_engine(url)
    with engine.begin() as connection:
        query = text(f"UPDATE trials SET params = '{params}' WHERE number = {number}")
        connection.execute(query)
    engine.dispose()


def test_a_tile_is_stored_as_its_fields_and_comes_back(url, store):
    assert written(url)[2] == {"tile": FIELDS, "outer": "cols"}
    assert [trial.params for trial in store.trials()] == list(POINTS)


def test_texts_are_read_as_tiles(url, store):
    """A row that an older version has written since, or that an archive of one brought."""
    change(url, 0, '{"tile": "1x4w8i8", "outer": "cols"}')
    assert store.trials()[0].params == POINTS[2]


def test_a_damaged_tile_is_left_out_and_the_others_are_there(url, store):
    change(url, 1, '{"tile": {"rows": 6}}')
    assert [trial.number for trial in store.trials()] == [0, 2, 3, 4, 5]


def test_the_api_has_the_text_and_the_fields(url, sessions, store):
    with reading(sessions) as session:
        shown = [
            trial_json(row) for row in session.scalars(select(models.Trial).order_by("number"))
        ]
    assert [trial["params"].get("tile") for trial in shown] == TEXTS
    description = {"description": "1 row x 4 vectors, k-block 8, 8 k-streams"}
    assert shown[2]["tile"] == FIELDS | description
    assert shown[4]["tile"] is shown[5]["tile"] is None
