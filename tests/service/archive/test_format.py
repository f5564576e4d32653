import shutil
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.service.archive.forging import edited
from tests.service.archive.stores import exported, fill_whole, rows_of
from tilewise.kernels.target.features import differences, implied
from tilewise.search.space.points import TilePoint
from tilewise.service.archive.container import FORMAT, MANIFEST, Manifest, opened
from tilewise.service.archive.lines import MEMBERS, ProofLine, ScriptLine
from tilewise.service.archive.restore import SINCE, restore
from tilewise.service.db import models, reading
from tilewise.service.results import integrity

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
    merged = restore(into, file, resume=True)
    assert merged.added["trials"] == counts["trials.jsonl"] and merged.resumed == 2
    stored = rows_of(into)
    ranges = counts.get("ranges.jsonl", 0)
    for table in ("problems", "toolchains", "machines", "schedules"):
        expected = counts[f"{table}.jsonl"] + (ranges if table == "problems" else 0)
        assert len(stored[table]) == expected, table
    assert len(stored["tuned_ranges"]) == ranges
    searches = [row for row in stored["jobs"] if row["kind"] == "tune"]
    assert len(searches) == counts["jobs.jsonl"] + merged.resumed


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


HIDDEN = ["avx512bf16", "avx512fp16"]


@pytest.mark.full
@pytest.mark.parametrize("number", [number for number in FORMATS if number < SINCE])
@pytest.mark.parametrize("features", ["some", "none", "another processor"])
def test_targets_of_before_3_get_the_features_of_their_machines(
    new_store, tmp_path, number, features
):
    """Which are those of the archive; jobs that wait may be for any machine of the name."""
    into, file = new_store(), tmp_path / "old.zip"
    shutil.copy(FOLDER / f"{number}.zip", file)
    cpus = []

    def edit(machines):
        (machine,) = machines
        cpus.append(machine["cpu"])
        if features == "another processor":
            machine["cpu"] = "znver1"
        missing = set(HIDDEN) & set(implied(machine["cpu"]))
        machine["features"] = sorted(implied(cpus[0]) - missing) if features == "some" else None

    edited(file, "machines.jsonl", edit)
    restore(into, file)
    plain = f"cpu:{cpus[0]},threads=1"
    hidden = differences(cpus[0], implied(cpus[0]) - set(HIDDEN))
    ending = f",features={':'.join(hidden) if features == 'some' else 'unknown'}"
    with reading(into) as session:
        for model in (models.Schedule, models.PastSchedule, models.SuiteReport):
            assert {row.target for row in session.query(model)} <= {plain + ending}
        assert {row.job.target for row in session.query(models.Network)} <= {plain + ending}
        for row in session.query(models.Schedule):
            assert integrity.is_whole(row) and not integrity.tampered_proofs(session, row)
        for job in session.query(models.Job).filter_by(kind="tune"):
            waited = "the archive was written while it was" in (job.error or "")
            nowhere = plain + ending if waited and features == "some" else plain
            nowhere += "" if waited else ",features=unknown"
            assert job.target == (plain + ending if job.host and not waited else nowhere)
    again = restore(into, file)
    assert not again.added, "the same archive twice is as good as once"


def test_the_page_has_the_format():
    for name in (MANIFEST, *MEMBERS):
        assert f"`{name}`" in PAGE
    for field in Manifest.model_fields:
        assert f"`{field}`" in PAGE
    assert f"`format` ({FORMAT})" in PAGE
