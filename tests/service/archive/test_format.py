import shutil
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.service.archive.forging import edited
from tests.service.archive.stores import exported, fill_whole, rows_of
from tests.service.conftest import TOOLCHAIN
from tilewise.search.space.points import TilePoint
from tilewise.service.archive.container import FORMAT, MANIFEST, Manifest, opened
from tilewise.service.archive.lines import MEMBERS, ProofLine, ScriptLine
from tilewise.service.archive.restore import restore
from tilewise.service.db import models, reading

FOLDER = Path(__file__).parent / "golden"
PAGE = (Path(__file__).parents[3] / "docs" / "archives.md").read_text()
FORMATS = sorted(int(path.stem) for path in FOLDER.glob("*.zip"))


def test_the_fields_of_a_format_stay(golden):
    """A change of these is a change of the format: count `FORMAT` up, and read what came before."""
    fields = {name: line.model_fields for name, line in MEMBERS.items()}
    fields["a proof"], fields["a script"] = ProofLine.model_fields, ScriptLine.model_fields
    text = "".join(f"{name}: {' '.join(found)}\n" for name, found in fields.items())
    golden(f"fields_of_{FORMAT}.txt", text)


def test_every_format_has_an_archive(request, new_store):
    """With a new format: run with --update-golden, and keep the file that it makes."""
    if FORMAT not in FORMATS and request.config.getoption("--update-golden"):
        store = new_store()
        fill_whole(store)
        exported(store, FOLDER / f"{FORMAT}.zip")
    found = sorted(int(path.stem) for path in FOLDER.glob("*.zip"))
    assert found == list(range(1, FORMAT + 1))


@pytest.mark.parametrize("number", FORMATS)
def test_an_archive_of_an_earlier_version_is_taken_in(new_store, number):
    into, file = new_store(), FOLDER / f"{number}.zip"
    with opened(file) as archive:
        counts = {name: part.rows for name, part in archive.manifest.members.items()}
    assert all(counts.values())
    assert restore(into, file).added["trials"] == counts["trials.jsonl"]
    here = {(row["target"], TOOLCHAIN) for row in rows_of(into)["jobs"]}
    assert restore(into, file, resume=here).resumed == 2
    stored = rows_of(into)
    ranges = counts.get("ranges.jsonl", 0)
    for table in ("problems", "toolchains", "machines", "schedules"):
        expected = counts[f"{table}.jsonl"] + (ranges if table == "problems" else 0)
        assert len(stored[table]) == expected, table
    assert len(stored["tuned_ranges"]) == ranges
    searches = [row for row in stored["jobs"] if row["kind"] == "tune"]
    assert len(searches) == counts["jobs.jsonl"] + 2


def test_tiles_of_before_4_are_read_from_their_texts(new_store, tmp_path):
    into, file = new_store(), tmp_path / "old.zip"
    shutil.copy(FOLDER / "3.zip", file)
    texts = ["1x4w8i8", "2x2w8e"]

    def edit(trials):
        for number, trial in enumerate(trials):
            trial["params"] = {"tile": texts[number % 2]}

    edited(file, "trials.jsonl", edit)
    restore(into, file)
    with reading(into) as session:
        found = session.scalars(select(models.Trial.params).order_by(models.Trial.id)).all()
    assert found[:2] == [{"tile": TilePoint(1, 4, "sweep", depth=8, streams=8)}, {"tile": texts[1]}]


def test_the_page_has_the_format():
    for name in (MANIFEST, *MEMBERS, *Manifest.model_fields):
        assert f"`{name}`" in PAGE
    assert f"`format` ({FORMAT})" in PAGE
