"""Ranges in a list: their variants are fetched, locked and held."""

import json
import shutil
from pathlib import Path

import pytest

from tests.service.archive.stores import RANGE, add_range, opened_store
from tests.tilewise.conftest import PROBLEM, Cli
from tests.tilewise.fetch.test_fetch import Place

STEM = "matmul_m1to9_n48_k32_f32"
ABSENT = RANGE.replace("1..9", "1..8")


@pytest.fixture(params=[pytest.param("service", marks=pytest.mark.full), "database"])
def place(
    request: pytest.FixtureRequest, cli: Cli, ranged: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Place:  # fmt: skip
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    is_served = request.param == "service"
    where = ("--server", request.getfixturevalue("served_as_stored")) if is_served else ()
    made = Place(cli, tmp_path, where or ("--db", ranged))
    made.list.write_text(f"{PROBLEM}\n{RANGE}\n")
    return made


def test_ranges_are_fetched_locked_and_held(
    place: Place, cli: Cli, ranged: str, tmp_path: Path
) -> None:
    assert place.fetch("--kernels").out == "3 written, 0 unchanged, 0 removed, 0 missing\n"
    files = place.files()
    variants = json.loads(files[f"{STEM}.json"])["variants"]
    assert variants == json.loads(cli("show", RANGE, "--json", *place.where).out)["variants"]
    kinds = {path: one.kind for path, one in place.entries().items() if one.problem == RANGE}
    assert kinds == {f"{STEM}.json": "range"}
    locked = place.lock.read_text()

    # The same variants measured again are the same files.
    with opened_store(ranged) as sessions:
        add_range(sessions, best_us=0.25)
    assert place.fetch("--kernels").out == "0 written, 3 unchanged, 0 removed, 0 missing\n"
    assert place.lock.read_text() == locked and place.files() == files
    assert place.fetch("--kernels", "--check").code == 0

    # A checkout of the lock file alone is filled from the store where the cache is empty.
    for folder in (place.folder, tmp_path / "cache"):
        shutil.rmtree(folder)
    assert place.fetch("--kernels", "--frozen").code == 0
    assert place.files() == files
    (place.folder / f"{STEM}.json").write_text("{}")
    ran = place.fetch("--kernels", "--frozen")
    assert ran.code == 3 and f"{STEM}.json: has sha256" in ran.err

    with opened_store(ranged) as sessions:
        add_range(sessions, first=2)
    (place.folder / f"{STEM}.json").write_text(files[f"{STEM}.json"])
    assert place.fetch("--kernels", "--check").out.count("changed") == 1
    assert place.fetch("--kernels").out == "1 written, 2 unchanged, 0 removed, 0 missing\n"
    assert json.loads(place.files()[f"{STEM}.json"])["variants"] != variants


def test_a_range_that_is_not_stored_is_missing(place: Place) -> None:
    place.list.write_text(f"{ABSENT}\n")
    ran = place.fetch()
    assert ran.code == 3 and f"{ABSENT}: no range is stored" in ran.err
    assert place.fetch("--check").code == 3
