import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from tests.cases import some
from tests.service.archive import stores
from tests.service.archive.forging import members_of
from tests.service.conftest import KEY, PROBLEM
from tilewise.search.records import TuneRequest
from tilewise.service.archive import lines, rows
from tilewise.service.archive.export import Selection
from tilewise.service.archive.restore import restore
from tilewise.service.db import models, writing
from tilewise.service.errors import NotFoundError, OutageError


@pytest.mark.parametrize(
    ("source", "target"), some(product(("sqlite", "postgresql"), repeat=2), of=4)
)
def test_an_export_of_what_was_imported_is_the_same(new_store, tmp_path, source, target):
    of, into = new_store(source), new_store(target)
    stores.fill(of)
    first = stores.exported(of, tmp_path / "first.zip")
    assert not first.left_out
    counts = {name: part.rows for name, part in first.members.items()}
    assert counts["jobs.jsonl"] == 4 and counts["trials.jsonl"] == 9
    assert all(counts.values()), "one of everything"
    merged = restore(into, tmp_path / "first.zip")
    assert merged.added["trials"] == 9 and not merged.known and not merged.unfinished
    second = stores.exported(into, tmp_path / "second.zip")
    assert second.members == first.members
    assert stores.trials_of(into) == stores.trials_of(of)
    again = stores.restored_in_vain(into, tmp_path / "first.zip")
    assert again.known["trials"] == 9 and not again.replaced


CANCELLED = "matmul:m=9,n=9,k=9,dtype=f32"
# What belongs to one database: its numbers, its leases, its machines, and who asked.
OF_ONE_STORE = {
    "id", "problem_id", "toolchain_id", "machine_id", "job_id", "schedule_id", "script_id",
    "token_id", "request_id", "owner", "claimed_at", "heartbeat_at", "epoch", "unserved_since",
    "work", "worker",
    *({field.name for field in fields(TuneRequest)} - lines.JobLine.model_fields.keys()),
}  # fmt: skip
INSTEAD = {"job", "problem", "toolchain", "host", "proofs", "script"}


@pytest.mark.parametrize(("model", "line"), [
    (models.Job, lines.JobLine), (models.Trial, lines.TrialLine),
    (models.Schedule, lines.ScheduleLine), (models.Proof, lines.ProofLine),
    (models.Script, lines.ScriptLine), (models.Machine, lines.MachineLine),
    (models.Network, lines.ModelLine), (models.TunedRange, lines.RangeLine),
])  # fmt: skip
def test_every_column_travels_or_belongs_to_one_store(model, line):
    columns = {column.name for column in model.__table__.columns} - OF_ONE_STORE
    if model is models.Network:
        columns |= {"target", "trials", "cache", "created_at"}  # of its job
    assert columns == set(line.model_fields) - (INSTEAD - columns)


def test_what_was_imported_is_served_as_it_was(filled, new_store, tmp_path, client_factory):
    into = new_store()
    stores.moved(filled, into, tmp_path / "a.zip")
    before, after = (client_factory(str(one.kw["bind"].url)) for one in (filled, into))
    asked = {"target": stores.here().target}
    was, found = (one.get(f"/v1/schedules/{KEY}/script", params=asked) for one in (before, after))
    assert was.status_code == found.status_code == 200
    assert (was.text, was.headers["ETag"]) == (found.text, found.headers["ETag"])
    found = after.get("/v1/schedules", params={"problem": PROBLEM, **asked}).json()
    assert found["best"]["gflops"] == 13.0 and found["proof"]["gflops"] == 40.0
    for problem, trials in ((PROBLEM, 4), (stores.RANGE, 2)):
        request = {"problem": problem, "trials": trials, "peers": problem == PROBLEM, **asked}
        again = after.post("/v1/jobs", json=request)
        assert again.status_code == 200, "what was searched for is not searched for again"
    of_size = {"problem": stores.RANGE.replace("1..9", "7"), "match": "range", **asked}
    assert after.get("/v1/schedules", params=of_size).json()["match"]["range"] == stores.RANGE


def test_no_secret_is_in_an_archive(filled, tmp_path):
    stores.exported(filled, tmp_path / "a.zip")
    digests = [row["digest"] for row in stores.rows_of(filled)["tokens"]]
    text = b"".join(members_of(tmp_path / "a.zip").values()).decode()
    assert len(digests) == 1 and "birch" in text
    assert not [secret for secret in (*digests, *stores.SECRETS) if secret in text]


MATMULS = {PROBLEM, stores.COLD, CANCELLED}


@pytest.mark.parametrize(("selection", "problems"), [
    (Selection(problems=(stores.COLD,)), {stores.COLD}),
    (Selection(kinds=("conv2d",)), {stores.IMAGE}),
    (Selection(kinds=("matmul",), dtypes=("bf16", "f32")), MATMULS),
    (Selection(since=datetime(2026, 1, 1, tzinfo=UTC)), {*MATMULS, stores.IMAGE}),
])  # fmt: skip
def test_a_selection_has_the_searches_of_its_problems(filled, tmp_path, selection, problems):
    manifest = stores.exported(filled, tmp_path / "a.zip", selection)
    members = members_of(tmp_path / "a.zip")
    found = [
        {json.loads(line)["problem"] for line in members[f"{name}.jsonl"].splitlines()}
        for name in ("problems", "jobs", "schedules")
    ]
    assert found == [problems, problems, problems - {CANCELLED}]
    assert (manifest.members["suites.jsonl"].rows > 0) is not selection.names_problems
    assert manifest.selection == selection.to_plain() != {}


@pytest.mark.parametrize("others", [{}, {"problems": (stores.RANGE, PROBLEM)}])
def test_an_archive_of_the_best_serves_them(filled, new_store, tmp_path, client_factory, others):
    """With the winning trials of their jobs, and nothing that no best result needs."""
    manifest = stores.exported(filled, tmp_path / "a.zip", Selection(best=True, **others))
    counts = {name: part.rows for name, part in manifest.members.items()}
    found = 1 if others else 3
    assert [counts[f"{one}.jsonl"] for one in ("schedules", "jobs", "trials")] == [found] * 3
    assert [counts[f"{one}.jsonl"] for one in ("history", "suites", "models")] == [0] * 3
    assert counts["ranges.jsonl"] == 1 and manifest.selection["best"]
    into = new_store()
    restore(into, tmp_path / "a.zip")
    hashes = {row["hash"] for row in stores.rows_of(into)["schedules"]}
    assert hashes == {row["hash"] for row in stores.rows_of(into)["trials"]}
    of_each = [client_factory(str(one.kw["bind"].url)) for one in (filled, into)]
    for problem in (PROBLEM, stores.RANGE):
        asked = {"problem": problem, "target": stores.here().target}
        before, after = (one.get("/v1/schedules", params=asked).json() for one in of_each)
        for answer in (before, after):
            # The counts are of the trials that an archive has, and it has no history.
            del answer["trials"]
            answer.pop("previous", None)
        assert before == after


@pytest.mark.parametrize("selection", [
    Selection(problems=("matmul:m=5,n=5,k=5,dtype=f32",)),
    Selection(targets=("cpu:vax,threads=1",)),
    Selection(since=datetime.now(UTC) + timedelta(days=1)),
])  # fmt: skip
def test_a_selection_of_nothing_writes_no_file(filled, tmp_path, selection):
    with pytest.raises(NotFoundError, match="nothing is stored"):
        stores.exported(filled, tmp_path / "a.zip", selection)
    assert not list(tmp_path.glob("*.zip")) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("kind", some(["sqlite", "postgresql"], of=2))
def test_a_search_that_goes_on_is_called_off_where_it_is_imported(new_store, tmp_path, kind):
    """It can be requested anew."""
    of, into = new_store(kind), new_store(kind)
    stores.cut_off(of, stores.Search(), 3)
    stores.ask(of, stores.Search(stores.COLD, (1.0,), toolchain="an older toolchain"))
    recheck = stores.ask(of, stores.Search(stores.IMAGE))
    with writing(of) as session:
        session.get_one(models.Job, recheck).kind = "recheck"
    merged = stores.moved(of, into, tmp_path / "a.zip")
    assert (merged.unfinished, merged.added["trials"], merged.resumed) == (3, 3, 0)
    jobs = stores.rows_of(into)["jobs"]
    assert [(row["state"], row["complete"]) for row in jobs] == [("cancelled", False)] * 3
    assert "while it was running" in jobs[0]["error"] and "queued" in jobs[1]["error"]
    assert {row["state"] for row in stores.rows_of(of)["jobs"]} == {"running", "queued"}
    for target, resumed in (("cpu:x", 0), *[(stores.here().target, 1)] * 2):  # joins what waits
        merged = restore(into, tmp_path / "a.zip", resume=[(target, stores.TOOLCHAIN)])
        assert (merged.unfinished, merged.resumed, merged.stale) == (3, resumed, 3 - resumed)
    called_off, _stale, _recheck, queued = stores.rows_of(into)["jobs"]
    assert (called_off["state"], queued["state"]) == ("cancelled", "queued")
    trials = stores.rows_of(into)["trials"]
    expected = product((called_off["id"], queued["id"]), range(3))
    assert sorted((row["job_id"], row["number"]) for row in trials) == list(expected)


def test_a_dry_run_changes_nothing(filled, new_store, tmp_path, monkeypatch):
    into = new_store()
    before = stores.rows_of(into)
    stores.ask(filled, stores.Search("matmul:m=8,n=9,k=9,dtype=f32"))
    places = [(stores.here().target, stores.TOOLCHAIN)]
    merged = stores.moved(filled, into, tmp_path / "a.zip", dry_run=True, resume=places)
    assert (merged.added["trials"], merged.resumed) == (9, 1) and stores.rows_of(into) == before

    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryDirectory", full)
    with pytest.raises(OutageError, match=f"cannot be had in {tmp_path}: .* No space left"):
        restore(into, tmp_path / "a.zip", dry_run=True)


OF_JOB = {"jobs": 1, "schedules": 1, "history": 1}
OF_MACHINE = {"machines": 1, "schedules": 3, "history": 1, "ranges": 1}


@pytest.mark.full
@pytest.mark.parametrize(("edit", "lacks"), [
    ("trials SET steps = '[]' WHERE number = 1", {"trials": 3}),
    ("trials SET compile_s = 'x' WHERE number = 1", {"trials": 3}),
    ("trials SET message = 'a' || char(0) WHERE number = 1", {"trials": 3}),
    ("schedules SET gflops = 99 WHERE gflops = 13", {"schedules": 1}),
    ("scripts SET text = 'x' WHERE id = 1", {"schedules": 1}),
    ("machines SET cores = -1", OF_MACHINE),
    ("machines SET caches = '['", OF_MACHINE),
    ("problems SET created_at = 'x' WHERE id = 1", {"problems": 1, **OF_JOB}),
    ("problems SET canonical = canonical || ',bias' WHERE id = 1", {"problems": 1, **OF_JOB}),
    ("toolchains SET created_at = 'x'",
     {"toolchains": 1, "jobs": 4, "schedules": 3, "history": 1, "models": 1, "ranges": 1}),
    ("tuned_ranges SET loss_mean = 9", {"ranges": 1}),
    ("suite_reports SET report = '{}'", {"suites": 1}),
    ("networks SET problems = '{}'", {"models": 1}),
    ("jobs SET created_at = 'x' WHERE id = 1", OF_JOB),
])  # fmt: skip
def test_damaged_rows_are_left_out_and_counted(filled, new_store, tmp_path, edit, lacks):
    stores.execute(filled, f"UPDATE {edit}")
    left_out = stores.exported(filled, tmp_path / "a.zip").left_out
    assert left_out == {f"{name}.jsonl": count for name, count in lacks.items()}
    restore(new_store(), tmp_path / "a.zip")


@pytest.mark.parametrize("kind", some(["sqlite", "postgresql"], of=2))
def test_an_export_is_of_one_moment(new_store, tmp_path, monkeypatch, kind):
    """A search that ends between two members of the archive is in neither of them."""
    of = new_store(kind)
    stores.searched(of)
    plain = rows.job_line

    def meanwhile(row):
        if not stores.rows_of(of)["problems"][1:]:
            stores.searched(of, stores.Search(stores.COLD))
        return plain(row)

    monkeypatch.setattr(rows, "job_line", meanwhile)
    manifest = stores.exported(of, tmp_path / "a.zip")
    counts = {name: part.rows for name, part in manifest.members.items()}
    assert counts["jobs.jsonl"] == counts["schedules.jsonl"] == counts["problems.jsonl"] == 1
