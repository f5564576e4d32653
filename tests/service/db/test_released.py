from dataclasses import replace
from itertools import product

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

from tests.service.archive.stores import exported, fill_whole, opened_store, rows_of
from tests.service.conftest import KEY, PROBLEM, TOOLCHAIN
from tests.service.db.released import dumps
from tilewise.service.archive.restore import restore
from tilewise.service.db import make_engine, make_sessions, models, schema

# A migration that says more of an old row than it said itself.
SAID_LATER = {("jobs", "complete"): (None, False)}
# Columns that a migration has moved to a table of their own, or to that of the jobs.
MOVED = {("plans", name): ("plan_sources", "plan_id") for name in ("graph", "module")}
OF_JOBS = ("plans", "networks")
VIEWS = {
    "best_schedules": "schedules", "trial_history": "trials", "job_progress": "jobs",
    "machine_activity": "machines", "proofs": "script_proofs",
    "schedule_history": "past_schedules", "best_ranges": "tuned_ranges",
}  # fmt: skip


def test_every_schema_has_a_database(request, tmp_path):
    """With a new migration: run with --update-golden, and keep the file that it makes."""
    is_new = schema.HEAD not in dumps.REVISIONS
    if is_new and request.config.getoption("--update-golden"):
        url = f"sqlite:///{tmp_path / 'new.db'}"
        schema.upgrade(url)
        fill_whole(make_sessions(make_engine(url)))
        dumps.write(tmp_path / "new.db", schema.HEAD)
    script = ScriptDirectory.from_config(schema.alembic_config())
    revisions = sorted(step.revision for step in script.walk_revisions())
    found = sorted(path.stem for path in dumps.FOLDER.glob("*.json"))
    assert found == revisions, "run this test with --update-golden, and keep the file"


def test_a_database_has_rows_of_every_table():
    newest = dumps.read(dumps.REVISIONS[-1])
    assert set(newest) == {mapper.local_table.name for mapper in models.Job.registry.mappers}
    for revision in dumps.REVISIONS:
        assert all(dumps.read(revision).values()), revision


@pytest.mark.full
@pytest.mark.parametrize(("kind", "revision"), [
    *product(["sqlite"], dumps.REVISIONS),
    *product(["postgresql"], [*dumps.REVISIONS[::-6], dumps.REVISIONS[-2]]),
])  # fmt: skip
def test_an_old_database_is_upgraded(kind, revision, tmp_path, request, client_factory, machine):
    url = f"sqlite:///{tmp_path / 'old.db'}"
    old = request.getfixturevalue("new_postgresql")() if kind == "postgresql" else url
    dumps.load(old, revision)
    before = dumps.tables_of(old)
    schema.upgrade(old)
    after = dumps.tables_of(old)
    for table in before:
        assert kept(table, with_moved(table, before), with_moved(table, after)), table
    counted_by_views(old, after)
    # Once upgraded, databases differ little, so every fourth is served and moved.
    if revision in dumps.REVISIONS[:: -4 if kind == "sqlite" else -12]:
        (written,) = after["machines"]
        features = written["features"] or machine.features
        written_on = replace(machine, cpu=written["cpu"], features=tuple(features))
        target = after["jobs"][0]["target"]
        assert target == (written_on.target if written["features"] else
                          f"cpu:{written_on.cpu},threads=1,features=unknown")  # fmt: skip
        served(client_factory(old, on=written_on), before, target)
        if kind == "sqlite":
            new = request.getfixturevalue("migrated_postgresql")()
        else:
            new = request.getfixturevalue("migrated_sqlite")(tmp_path / "new.db")
        moved(old, new, tmp_path / "a.zip")


def with_moved(table, tables):
    """The rows of a table with the columns that it has had, and without those that joined it."""
    found = [dict(row) for row in tables[table] if row.get("kind") != "model"]
    if table in OF_JOBS and "job_id" in found[0]:
        jobs = {row["id"]: row for row in tables["jobs"]}
        found = [{**jobs[row["job_id"]], **row} for row in found]
    if table == "idempotency_keys":
        found = [{"plan_id": None, **row} for row in found]
    for (of, name), (place, owner) in MOVED.items():
        if of == table and place in tables and name not in found[0]:
            values = {row[owner]: row[name] for row in tables[place]}
            for row in found:
                row[name] = values.get(row["id"])
    return found


def kept(table, before, after):
    """Whether all rows are there as they were, but for what migrations said later."""
    assert len(after) == len(before) > 0
    for old, new in zip(before, after, strict=True):
        is_renamed = "target" in old and new["target"] != old["target"]
        if is_renamed:
            assert new["target"].partition(",features=")[0] == old["target"]
        for name, value in old.items():
            # Digests follow the targets; whoever is served a row checks them.
            if name == "digest" or (is_renamed and name in ("target", "plan")):
                continue
            if (value, new[name]) != SAID_LATER.get((table, name)):
                assert new[name] == value, name
    return True


def counted_by_views(url, tables):
    engine = make_engine(url)
    with engine.connect() as connection:
        for view, table in VIEWS.items():
            rows = connection.execute(text(f"SELECT * FROM {view}")).all()
            assert len(rows) == len(with_moved(table, tables)), view
        failures = connection.execute(text("SELECT source FROM failures")).scalars().all()
        assert {"trial", "job", "proof"} == set(failures)
        if engine.dialect.name == "sqlite":
            query = text("SELECT sql FROM sqlite_master WHERE name = 'uq_jobs_active'")
            partial = "WHERE state IN ('queued', 'running')"
            assert partial in connection.scalar(query), "or ended jobs stand in the way"
    engine.dispose()


def served(client, before, target):
    """Whether the API shows all of it, and of the best schedules the scripts that are proven."""
    jobs = with_moved("jobs", before)
    listed = client.get("/v1/jobs").json()
    assert listed["unreadable"] == 0 and len(listed["jobs"]) == len(jobs)
    plans = client.get("/v1/plans").json()
    assert plans["unreadable"] == 0 and len(plans["plans"]) == len(before.get("plans", ()))
    for job in jobs:
        assert client.get(f"/v1/jobs/{job['id']}/trials").json()["unreadable"] == 0
    asked = {"target": target}
    best = client.get("/v1/schedules", params={"problem": PROBLEM, **asked})
    assert best.status_code == 200 and best.json()["best"]["gflops"] == 13.0
    assert best.json()["toolchain"] == TOOLCHAIN
    assert client.get(f"/v1/schedules/{KEY}/script", params=asked).status_code == 200
    (refuted,) = (row["key"] for row in before["problems"] if ":m=8," in row["canonical"])
    assert client.get(f"/v1/schedules/{refuted}/script", params=asked).status_code == 404
    again = client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 4, **asked})
    is_known = not target.endswith("=unknown")
    assert again.status_code == (200 if is_known else 422), "it is not searched for again"


def searches(rows):
    names = {row["id"]: row["canonical"] for row in rows["problems"]}
    jobs = {row["id"]: row["problem_id"] for row in rows["jobs"] if row["kind"] == "tune"}
    return [names[jobs[number]] for number in sorted(jobs)]


def moved(old, new, file):
    with opened_store(old) as of, opened_store(new) as into:
        assert not exported(of, file).left_out
        restore(into, file)
        before, after = rows_of(of), rows_of(into)
    assert searches(after) == searches(before)
    for table in ("trials", "schedules", "scripts", "script_proofs", "past_schedules",
                  "suite_reports", "networks"):  # fmt: skip
        assert len(after[table]) == len(before[table]), table
