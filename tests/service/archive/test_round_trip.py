import base64
import json
import zipfile
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from tests.cases import some
from tests.service.archive.stores import (
    COLD,
    IMAGE,
    RANGE,
    SECRETS,
    Search,
    ask,
    cut_off,
    exported,
    fill,
    here,
    moved,
    rows_of,
    searched,
    trials_of,
)
from tests.service.conftest import PROBLEM
from tilewise.kernels.problem import parse_problem
from tilewise.service.archive.export import Selection
from tilewise.service.archive.lines import (
    JobLine,
    MachineLine,
    ModelLine,
    ProofLine,
    RangeLine,
    ScheduleLine,
    ScriptLine,
    TrialLine,
)
from tilewise.service.archive.restore import restore
from tilewise.service.db import models
from tilewise.service.errors import NotFoundError


@pytest.mark.parametrize(
    ("source", "target"), some(product(("sqlite", "postgresql"), repeat=2), of=3)
)
def test_an_export_of_what_was_imported_is_the_same(new_store, tmp_path, source, target):
    of, into = new_store(source), new_store(target)
    fill(of)
    first = exported(of, tmp_path / "first.zip")
    assert not first.left_out
    counts = {name: part.rows for name, part in first.members.items()}
    assert counts["jobs.jsonl"] == 4 and counts["trials.jsonl"] == 9
    assert all(counts.values()), "one of everything"
    merged = restore(into, tmp_path / "first.zip")
    assert merged.added["trials"] == 9 and not merged.known and not merged.unfinished
    second = exported(into, tmp_path / "second.zip")
    assert second.members == first.members
    assert trials_of(into) == trials_of(of)


# What belongs to one database: its numbers, its leases, its machines, and who asked.
OF_ONE_STORE = {
    "id", "problem_id", "toolchain_id", "machine_id", "job_id", "schedule_id", "script_id",
    "token_id", "request_id", "owner", "claimed_at", "heartbeat_at", "epoch", "unserved_since",
    "spread", "kind", "work", "worker",
}  # fmt: skip
INSTEAD = {"job", "problem", "toolchain", "host", "proofs", "script"}


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (models.Job, JobLine),
        (models.Trial, TrialLine),
        (models.Schedule, ScheduleLine),
        (models.Proof, ProofLine),
        (models.Script, ScriptLine),
        (models.Machine, MachineLine),
        (models.Network, ModelLine),
        (models.TunedRange, RangeLine),
    ],
)
def test_every_column_travels_or_belongs_to_one_store(model, line):
    columns = {column.name for column in model.__table__.columns} - OF_ONE_STORE
    if model is models.Network:
        columns |= {"target", "trials", "cache", "created_at"}  # of its job
    assert columns == set(line.model_fields) - (INSTEAD - columns)


def test_what_was_imported_is_served_as_it_was(filled, new_store, tmp_path, client_factory):
    into = new_store()
    moved(filled, into, tmp_path / "a.zip")
    key = parse_problem(PROBLEM).key
    before, after = (client_factory(str(one.kw["bind"].url)) for one in (filled, into))
    asked = {"target": here().target}
    scripts = [one.get(f"/v1/schedules/{key}/script", params=asked) for one in (before, after)]
    assert [script.status_code for script in scripts] == [200, 200]
    assert scripts[0].text == scripts[1].text
    assert scripts[0].headers["ETag"] == scripts[1].headers["ETag"]
    found = after.get("/v1/schedules", params={"problem": PROBLEM, **asked}).json()
    assert found["best"]["gflops"] == 13.0 and found["proof"]["gflops"] == 40.0
    for problem, trials in ((PROBLEM, 4), (RANGE, 2)):
        request = {"problem": problem, "trials": trials, "peers": problem == PROBLEM, **asked}
        again = after.post("/v1/jobs", json=request)
        assert again.status_code == 200, "what was searched for is not searched for again"
    of_size = {"problem": RANGE.replace("1..9", "7"), "match": "range", **asked}
    assert after.get("/v1/schedules", params=of_size).json()["match"]["range"] == RANGE


def test_no_secret_is_in_an_archive(filled, tmp_path):
    exported(filled, tmp_path / "a.zip")
    digests = [row["digest"] for row in rows_of(filled)["tokens"]]
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        told = b"".join(archive.read(name) for name in archive.namelist()).decode()
    assert len(digests) == 1 and "birch" in told
    for secret in (*digests, *SECRETS):
        assert secret not in told


def test_a_member_is_json_lines_that_anybody_can_read(filled, tmp_path):
    exported(filled, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        lines = [json.loads(line) for line in archive.read("trials.jsonl").splitlines()]
        jobs = [json.loads(line) for line in archive.read("jobs.jsonl").splitlines()]
    failed = [line for line in lines if line["state"] == "failed"]
    assert {line["max_error"] for line in failed} == {"infinity"}
    assert len(base64.b64decode(lines[0]["samples"])) == 24
    assert {line["job"] for line in lines} <= {job["job"] for job in jobs}


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


@pytest.mark.parametrize(
    ("selection", "problems"),
    [
        (Selection(problems=(COLD,)), {COLD}),
        (Selection(kinds=("conv2d",)), {IMAGE}),
        (Selection(dtypes=("bf16",)), {COLD}),
        (Selection(kinds=("matmul",), dtypes=("bf16", "f32")), {PROBLEM, COLD, "m=9"}),
        (Selection(since=datetime(2026, 1, 1, tzinfo=UTC)), {PROBLEM, COLD, IMAGE, "m=9"}),
    ],
)
def test_a_selection_has_the_searches_of_its_problems(filled, tmp_path, selection, problems):
    expected = {"matmul:m=9,n=9,k=9,dtype=f32" if one == "m=9" else one for one in problems}
    manifest = exported(filled, tmp_path / "a.zip", selection)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        found = {
            name: {json.loads(line)["problem"] for line in archive.read(name).splitlines()}
            for name in ("problems.jsonl", "jobs.jsonl", "schedules.jsonl")
        }
    assert found["problems.jsonl"] == found["jobs.jsonl"] == expected
    assert found["schedules.jsonl"] == expected - {"matmul:m=9,n=9,k=9,dtype=f32"}
    has_suites = not selection.names_problems
    assert (manifest.members["suites.jsonl"].rows > 0) is has_suites
    assert manifest.selection == selection.to_plain() != {}


@pytest.mark.parametrize("others", [{}, {"problems": (RANGE, PROBLEM)}])
def test_the_best_alone_are_served_as_from_the_whole_store(
    filled, new_store, tmp_path, client_factory, others
):
    """With the winning trials of their jobs, and nothing that no best result needs."""
    manifest = exported(filled, tmp_path / "a.zip", Selection(best=True, **others))
    counts = {name: part.rows for name, part in manifest.members.items()}
    found = 1 if others else 3
    assert [counts[f"{one}.jsonl"] for one in ("schedules", "jobs", "trials")] == [found] * 3
    assert [counts[f"{one}.jsonl"] for one in ("history", "suites", "models")] == [0] * 3
    assert counts["ranges.jsonl"] == 1 and manifest.selection["best"]
    into = new_store()
    restore(into, tmp_path / "a.zip")
    hashes = {row["hash"] for row in rows_of(into)["schedules"]}
    assert hashes == {row["hash"] for row in rows_of(into)["trials"]}
    of_each = [client_factory(str(one.kw["bind"].url)) for one in (filled, into)]
    for problem in (PROBLEM, RANGE):
        asked = {"problem": problem, "target": here().target}
        before, after = (one.get("/v1/schedules", params=asked).json() for one in of_each)
        for answer in (before, after):
            # The counts are of the trials that an archive has, and it has no history.
            del answer["trials"]
            answer.pop("previous", None)
        assert before == after


@pytest.mark.parametrize(
    "selection",
    [
        Selection(problems=("matmul:m=5,n=5,k=5,dtype=f32",)),
        Selection(targets=("cpu:vax,threads=1",)),
        Selection(since=tomorrow()),
    ],
)
def test_a_selection_of_nothing_writes_no_file(filled, tmp_path, selection):
    with pytest.raises(NotFoundError, match="nothing is stored"):
        exported(filled, tmp_path / "a.zip", selection)
    assert not list(tmp_path.glob("*.zip")) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("kind", some(["sqlite", "postgresql"], of=2))
def test_a_search_that_goes_on_is_called_off_where_it_is_imported(new_store, tmp_path, kind):
    of, into = new_store(kind), new_store(kind)
    cut_off(of, Search(), 3)
    ask(of, Search(COLD, (1.0,)))
    merged = moved(of, into, tmp_path / "a.zip")
    assert (merged.unfinished, merged.added["trials"], merged.resumed) == (2, 3, 0)
    jobs = rows_of(into)["jobs"]
    assert {row["state"] for row in jobs} == {"cancelled"}
    assert [row["complete"] for row in jobs] == [False, False]
    assert "while it was running" in jobs[0]["error"] and "queued" in jobs[1]["error"]
    assert {row["state"] for row in rows_of(of)["jobs"]} == {"running", "queued"}


def test_a_search_that_goes_on_can_be_asked_for_anew(new_store, tmp_path):
    of, into = new_store(), new_store()
    cut_off(of, Search(), 3)
    assert moved(of, into, tmp_path / "a.zip", resume=True).resumed == 1
    called_off, queued = rows_of(into)["jobs"]
    assert (called_off["state"], queued["state"]) == ("cancelled", "queued")
    trials = rows_of(into)["trials"]
    assert sorted((row["job_id"], row["number"]) for row in trials) == [
        (row["id"], number) for row in (called_off, queued) for number in range(3)
    ]
    assert restore(into, tmp_path / "a.zip", resume=True).resumed == 1
    assert len(rows_of(into)["jobs"]) == 2, "the one that waits is joined"


def test_a_dry_run_changes_nothing(filled, new_store, tmp_path):
    into = new_store()
    before = rows_of(into)
    merged = moved(filled, into, tmp_path / "a.zip", dry_run=True, resume=True)
    assert merged.added["trials"] == 9 and rows_of(into) == before


@pytest.mark.full
@pytest.mark.parametrize(
    ("edit", "lacks"),
    [
        ("UPDATE trials SET steps = '[]' WHERE number = 1", {"trials.jsonl": 3}),
        ("UPDATE trials SET compile_s = 'x' WHERE number = 1", {"trials.jsonl": 3}),
        ("UPDATE trials SET message = 'a' || char(0) WHERE number = 1", {"trials.jsonl": 3}),
        ("UPDATE schedules SET gflops = 99 WHERE gflops = 13", {"schedules.jsonl": 1}),
        ("UPDATE scripts SET text = 'x' WHERE id = 1", {"schedules.jsonl": 1}),
        (
            "UPDATE machines SET cores = -1",
            {"machines.jsonl": 1, "schedules.jsonl": 3, "history.jsonl": 1, "ranges.jsonl": 1},
        ),
        (
            "UPDATE machines SET caches = '['",
            {"machines.jsonl": 1, "schedules.jsonl": 3, "history.jsonl": 1, "ranges.jsonl": 1},
        ),
        (
            "UPDATE problems SET created_at = 'x' WHERE id = 1",
            {"problems.jsonl": 1, "jobs.jsonl": 1, "schedules.jsonl": 1, "history.jsonl": 1},
        ),
        (
            "UPDATE toolchains SET created_at = 'x'",
            {
                "toolchains.jsonl": 1,
                "jobs.jsonl": 4,
                "schedules.jsonl": 3,
                "history.jsonl": 1,
                "models.jsonl": 1,
                "ranges.jsonl": 1,
            },
        ),
        ("UPDATE tuned_ranges SET loss_mean = 9", {"ranges.jsonl": 1}),
        ("UPDATE suite_reports SET report = '{}'", {"suites.jsonl": 1}),
        ("UPDATE networks SET problems = '{}'", {"models.jsonl": 1}),
        (
            "UPDATE jobs SET created_at = 'x' WHERE id = 1",
            {"jobs.jsonl": 1, "schedules.jsonl": 1, "history.jsonl": 1},
        ),
        (
            "UPDATE problems SET canonical = canonical || ',bias' WHERE id = 1",
            {"problems.jsonl": 1, "jobs.jsonl": 1, "schedules.jsonl": 1, "history.jsonl": 1},
        ),
    ],
)
def test_damaged_rows_are_left_out_and_counted(filled, new_store, tmp_path, edit, lacks):
    with filled.kw["bind"].begin() as connection:
        connection.exec_driver_sql(edit)
    assert exported(filled, tmp_path / "a.zip").left_out == lacks
    restore(new_store(), tmp_path / "a.zip")


@pytest.mark.parametrize("kind", some(["sqlite", "postgresql"], of=2))
def test_an_export_is_of_one_moment(new_store, tmp_path, monkeypatch, kind):
    """A search that ends between two members of the archive is in neither of them."""
    from tilewise.service.archive import rows

    of = new_store(kind)
    searched(of)
    plain = rows.job_line

    def meanwhile(row):
        if not rows_of(of)["problems"][1:]:
            searched(of, Search(COLD))
        return plain(row)

    monkeypatch.setattr(rows, "job_line", meanwhile)
    manifest = exported(of, tmp_path / "a.zip")
    counts = {name: part.rows for name, part in manifest.members.items()}
    assert counts["jobs.jsonl"] == counts["schedules.jsonl"] == counts["problems.jsonl"] == 1
