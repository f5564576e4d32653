import base64
import json
import random
import tracemalloc
import zipfile
from functools import reduce
from operator import getitem

import pytest

from tests.service.archive.forging import edited, members_of, sealed, write
from tests.service.archive.stores import exported, fill, opened_store, rows_of
from tilewise.service.archive.lines import MEMBERS
from tilewise.service.archive.restore import restore
from tilewise.service.db.trials import pack_samples
from tilewise.service.errors import ArchiveError


@pytest.fixture(scope="module")
def whole(tmp_path_factory, migrated_sqlite):
    folder = tmp_path_factory.mktemp("whole")
    with opened_store(migrated_sqlite(folder / "store.db")) as filled:
        fill(filled)
        exported(filled, folder / "a.zip")
    return (folder / "a.zip").read_bytes()


@pytest.fixture
def archive(whole, tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(whole)
    return path


@pytest.fixture(scope="module")
def into(tmp_path_factory, migrated_sqlite):
    with opened_store(migrated_sqlite(tmp_path_factory.mktemp("into") / "store.db")) as empty:
        yield empty


@pytest.fixture
def refused(into, archive):
    """Imports the archive: the one line that refuses it."""
    before = {name: [] for name in rows_of(into)}

    def check() -> str:
        with pytest.raises(ArchiveError) as raised:
            restore(into, archive)
        message = str(raised.value)
        assert message.startswith(f"archive {str(archive)!r}: ")
        assert message.endswith("; nothing was changed")
        assert len(message) < 700 and len(message.splitlines()) == 1
        assert rows_of(into) == before
        return message

    return check


def test_another_file_or_one_that_was_cut_off(whole, archive, refused):
    others = (b"", b"x", b"PK\x05\x06" + b"\0" * 18, b"{}\n" * 999, whole[:-1])
    for content in (*others, *(whole[: len(whole) * part // 20] for part in range(1, 20))):
        archive.write_bytes(content)
        refused()


def test_a_bit_that_was_flipped_is_found_or_of_no_effect(whole, archive, into):
    draw, found = random.Random(0), 0
    for _ in range(60):
        place = draw.randrange(len(whole))
        broken = bytearray(whole)
        broken[place] ^= 1 << draw.randrange(8)
        archive.write_bytes(broken)
        try:
            merged = restore(into, archive, dry_run=True)
        except ArchiveError:
            found += 1
        else:
            assert merged.added["trials"] == 9 and merged.added["jobs"] == 4
    assert found > 45
    assert not rows_of(into)["trials"]


def drop(name):
    return lambda members: members.pop(name)


def put(name, data):
    return lambda members: members.update({name: data})


def swell(members):
    members.update(sealed({**members, "models.jsonl": b" " * 80 * 2**20}))


def of_manifest(**values):
    def edit(members):
        manifest = json.loads(members["manifest.json"]) | values
        members["manifest.json"] = json.dumps(manifest).encode()

    return edit


@pytest.mark.parametrize(("edit", "said"), [
    (drop("jobs.jsonl"), "'jobs.jsonl'"),
    (put("../../etc/passwd", b"x"), "'../../etc/passwd'"),
    (put("trials.jsonl", b""), "trials.jsonl does not have the SHA-256"),
    (put("manifest.json", b"x" * 2**21), "manifest.json has more than"),
    (put("manifest.json", b"[" * 2**19), "manifest.json: "),
    (of_manifest(format=6), "it has format 6, and this tilewise reads 1 to 5"),
    (of_manifest(format=1), "members of format 1: history.jsonl, ranges.jsonl"),
    (of_manifest(format=4), "does not list the members of format 4: ranges.jsonl"),
    (drop("history.jsonl"), "'history.jsonl'"),
    (of_manifest(members={}), "does not list the members"),
    (of_manifest(created_at="yesterday"), "manifest.json: created_at"),
    (swell, "more than 200 times the file"),
])  # fmt: skip
def test_other_members(archive, refused, edit, said):
    members = members_of(archive)
    edit(members)
    write(archive, members)
    assert said in refused()


def test_a_member_twice(archive, refused):
    members = members_of(archive)
    members.pop("models.jsonl")
    write(archive, members)
    with zipfile.ZipFile(archive, "a") as opened, pytest.warns(UserWarning, match="Duplicate"):
        opened.writestr("jobs.jsonl", b"")
    assert "members of an archive" in refused()


def test_a_member_that_is_encrypted_or_compressed_in_another_way(archive, refused):
    write(archive, members_of(archive), zipfile.ZIP_BZIP2)
    assert "compressed in another way" in refused()


@pytest.mark.full
def test_a_line_without_an_end_takes_little_memory(archive, refused):
    members = members_of(archive)
    members["models.jsonl"] = b'"' + random.Random(0).randbytes(2**20).hex().encode() * 24 + b'"\n'
    write(archive, sealed(members))
    del members
    tracemalloc.start()
    assert "models.jsonl line 1 is too long" in refused()
    assert tracemalloc.get_traced_memory()[1] < 150 * 2**20
    tracemalloc.stop()


def first(*path, **values):
    return lambda lines: reduce(getitem, path, lines[0]).update(values)


def swap(lines):
    lines[0], lines[1] = lines[1], lines[0]


def packed(*samples):
    return base64.b64encode(pack_samples(samples)).decode()


ONE = "matmul:m=8,n=8,k=8,dtype=f32"
PROOF = "proofs", 0


@pytest.mark.parametrize(("member", "edit", "said"), [
    ("schedules.jsonl", first(gflops=999.0), "do not have its digest"),
    ("schedules.jsonl", first(host="nowhere"), "'nowhere', which is not in the archive"),
    ("schedules.jsonl", first(proofs={}), "proofs: "),
    ("schedules.jsonl", first(peers={"x": {}}), "has no gflops"),
    ("schedules.jsonl", first(*PROOF, max_error=1e9), "a proof of it is not what was proven"),
    ("schedules.jsonl", first(*PROOF, script=None), "proves a script that was not executed"),
    ("schedules.jsonl", first(*PROOF, executed=False), "proves a script that was not executed"),
    (
        "schedules.jsonl",
        first(*PROOF, "script", text="forged"),
        "a proof of it is not what was proven",
    ),
    ("trials.jsonl", first(gflops=None), "timed without a speed"),
    ("trials.jsonl", first(max_error="-infinity"), "max_error: "),
    ("trials.jsonl", first(steps=[]), "its steps do not have its hash"),
    ("trials.jsonl", first(params={"a": {}}), "params.a"),
    ("trials.jsonl", first(params={"tile": {"rows": 6}}), "no register tile"),
    ("trials.jsonl", first(samples="!!!"), "samples: "),
    ("trials.jsonl", first(message="a\0b"), "holds the character NUL"),
    ("trials.jsonl", first(job="0" * 64), "its job is not in the archive"),
    ("trials.jsonl", first(extra=1), "extra: "),
    ("trials.jsonl", swap, "not in the jobs' order"),
    ("trials.jsonl", lambda lines: lines.insert(1, lines[0]), "not in the jobs' order"),
    ("jobs.jsonl", lambda lines: lines.append(lines[0]), "the job is in the archive twice"),
    ("jobs.jsonl", first(seed=5), "job is not the name of the requested work"),
    ("jobs.jsonl", first(problem="matmul:m=0"), "problem: "),
    ("problems.jsonl", lambda lines: lines.clear(), "which is not in the archive"),
    ("problems.jsonl", first(problem="matmul:dtype=f32,m=1,n=1,k=1"), "canonical string is"),
    ("suites.jsonl", first(report={}), "suite: Field required"),
    ("suites.jsonl", first("report", counted=7), "counted"),
    ("ranges.jsonl", first(loss_mean=0.5), "do not have its digest"),
    ("ranges.jsonl", first("result", tiles=[0, 0]), "its result cannot be read"),
    ("ranges.jsonl", first("result", spans=[[1, 10**15, 0]]), "its result cannot be read"),
    ("models.jsonl", first(problems=[{}]), "has no problem"),
    ("models.jsonl", first(problems=[{"problem": "x", "count": 1}]), "is not a problem"),
    ("trials.jsonl", first(created_at="9999-12-31T23:59:59Z"), "line 1: created_at: "),
    ("trials.jsonl", first(created_at="0001-01-01T00:00:00+14:00"), "line 1: created_at: "),
    ("trials.jsonl", first(created_at="1969-12-31T00:00:00Z"), "line 1: created_at: "),
    ("machines.jsonl", first(features=["x" * 10 * 2**20]), "features.0: "),
    ("machines.jsonl", first(host="a\x1b[2J"), "host: "),
    ("jobs.jsonl", first(state="queued", trials=0), "trials=0 is out of range"),
    ("jobs.jsonl", first(error="x" * 5 * 2**20), "error: "),
    ("trials.jsonl", first(low=2.0, high=1.0), "ends before it begins"),
    ("trials.jsonl", first(samples=packed(1e-6, -1e-6)), "samples: "),
    ("trials.jsonl", first(params={"a": 10**400}), "params.a"),
    ("trials.jsonl", first(steps=[{"step": "x" * 200_000}]), "steps: "),
    ("schedules.jsonl", first(measured={"samples": "x" * 10**6}), "measured: "),
    ("suites.jsonl", first("report", x=10**400), "report: "),
    ("models.jsonl", first(problems=[{"problem": ONE, "count": -1}]), "no count"),
    ("models.jsonl", first(skipped=[{"op": float("inf"), "reason": ""}]), "skipped.0: "),
])  # fmt: skip
def test_an_edit_that_was_sealed_anew(archive, refused, member, edit, said):
    edited(archive, member, edit)
    message = refused()
    assert ".jsonl line " in message and said in message
    assert member in message or not zipfile.Path(archive, member).read_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"{", b"["), (b"\n", b""), (b'"number":0', b'"number":0,"number":1'),
     (b'"params":{', b'"params":' + b'{"a":' * 5000 + b"{"),
     (b'"message":""', b'"message":"\xff"'), (b'"pace":1.25', b'"pace":1e999')],
)  # fmt: skip
def test_bytes_that_were_sealed_anew(archive, refused, old, new):
    members = members_of(archive)
    before = members["trials.jsonl"]
    members["trials.jsonl"] = before.replace(old, new, 1)
    assert members["trials.jsonl"] != before
    write(archive, sealed(members))
    refused()


def test_an_archive_that_was_sealed_anew_and_not_edited_is_taken_in(archive, into):
    for member in MEMBERS:
        edited(archive, member, lambda lines: None)
    assert restore(into, archive, dry_run=True).added["trials"] == 9
