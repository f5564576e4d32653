import sqlite3

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, String, inspect, select

from tests.service import fakes
from tests.service.conftest import TOOLCHAIN
from tests.service.db.released import dumps
from tests.service.db.test_database import file_of
from tests.service.plan_rows import wanted
from tilewise.migrations.views import v0018
from tilewise.migrations.views.replacing import replaced
from tilewise.service.db import make_engine, models, reading, schema, writing
from tilewise.service.db.base import Base
from tilewise.service.db.session import write_connection
from tilewise.service.jobs import model_jobs
from tilewise.service.jobs.queue import Submitter
from tilewise.service.runs import offers

OTHER = "matmul:m=8,n=8,k=8,dtype=f32"
WORK = ("jobs", "schedules")
SAME = object()
PROOFS = {"proofs": "script_proofs"}  # the table's name before revision 0009, and since
# What a step that goes down and up again leaves in its own columns.
COLUMNS = {
    "0002": {("schedules", "scratch_bytes"): None},
    "0003": {
        ("jobs", "cache"): "hot",
        ("schedules", "cache"): "hot",
        ("schedules", "measured"): None,
    },
    "0004": {("trials", "pace"): None},
    "0005": {("jobs", "epoch"): 0},
    "0006": {("schedules", "digest"): SAME, ("script_proofs", "digest"): SAME},
    "0008": {
        ("jobs", "phase"): None,
        ("jobs", "token_id"): None,
        ("machines", "peaks"): None,
        ("trials", "samples_taken"): None,
    },
    "0009": {("jobs", "host"): SAME},
    "0010": {("machines", "bandwidth_gbs"): None},
    "0013": {("jobs", "unserved_since"): None},
    "0014": {("jobs", "spread"): 1},
}


def test_there_is_one_head():
    heads = ScriptDirectory.from_config(schema.alembic_config()).get_heads()
    assert heads == [schema.HEAD]


def test_models_and_migrations_agree(url):
    engine = make_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == [], (
            "python -m tilewise.service.db.draft_migration TEXT"
        )


def test_checks_agree_in_name_and_text(url):
    """Alembic does not compare checks."""
    migrated = inspect(make_engine(url))
    for table in Base.metadata.sorted_tables:
        declared = {
            str(check.name): str(check.sqltext)
            for check in table.constraints
            if isinstance(check, CheckConstraint)
        }
        found = {c["name"]: c["sqltext"] for c in migrated.get_check_constraints(table.name)}
        assert found == declared


@pytest.fixture
def populated(url, sessions, submit, run):
    """Results for hot and for cold caches, proven and failed, and a job that waits."""
    run(submit(peers=True))
    run(submit(OTHER, cache="cold"), prover=fakes.prove_wrong)
    waiting = submit("matmul:m=9,n=9,k=9,dtype=f32", seconds=1.5)
    with writing(sessions) as session:
        session.add(models.Token(id=1, name="ci", digest="0" * 64, scope="read"))
        session.add(models.IdempotencyKey(subject="token:1", key="k", request="0", job_id=waiting))
        machine = session.scalars(select(models.Machine)).first()
        session.add(models.Worker(owner="x", machine=machine, targets=[], toolchain="", capacity=1))
        session.flush()
        session.get_one(models.Job, waiting).token_id = 1
    return url


def test_every_step_goes_down_and_up_again_with_data(populated):
    for step in ScriptDirectory.from_config(schema.alembic_config()).walk_revisions():
        before = rows_of(populated)
        # Targets lose features that are not those of the processor's name, with their digests.
        renames = step.revision == "0019" and "features=" in before["jobs"][0]["target"]
        migrate(populated, command.downgrade, step.down_revision or "base")
        below = rows_of(populated)
        assert renames or below == kept(before, below, step.revision), step.doc
        migrate(populated, command.upgrade, step.revision)
        again = rows_of(populated)
        assert renames or kept(again, below, step.revision) == below, step.doc
        for table, column in COLUMNS.get(step.revision, {}):
            found = {row[column] for row in again[table]}
            was = {row[column] for row in before[table] if row["id"] in ids(again[table])}
            expected = COLUMNS[step.revision][table, column]
            assert found == (was if expected is SAME else {expected}), (table, column)
        migrate(populated, command.downgrade, step.down_revision or "base")
    assert rows_of(populated) == {}


@pytest.mark.full
@pytest.mark.parametrize(
    ("edit", "table"),
    [
        ("UPDATE scripts SET text = 'x'", "proofs"),
        ("UPDATE scripts SET text = x'ff'", "proofs"),
        ("UPDATE scripts SET steps = '['", "proofs"),
        ("UPDATE scripts SET steps = '[]'", "proofs"),
        ("UPDATE proofs SET executed = 0", "proofs"),
        ("UPDATE proofs SET max_error = 9e999", "proofs"),
        ("UPDATE proofs SET max_error = 'x'", "proofs"),
        ("UPDATE proofs SET max_error = NULL", "proofs"),
        ("UPDATE schedules SET steps = '[]'", "schedules"),
        ("UPDATE problems SET canonical = canonical || ',bias'", "both"),
    ],
)
def test_an_upgrade_vouches_for_no_row_that_disagrees_with_itself(
    tmp_path, populated, client_factory, edit, table
):
    old = copy_as_of(populated, tmp_path / "old.db", "0005")
    with sqlite3.connect(tmp_path / "old.db") as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"{edit} WHERE id = 1")
    schema.upgrade(old)
    with sqlite3.connect(tmp_path / "old.db") as connection:
        for name in ("schedules", "proofs"):
            since = PROOFS.get(name, name)
            found = connection.execute(f"SELECT digest IS NULL FROM {since} ORDER BY id").fetchall()
            first, *others = (is_null for (is_null,) in found)
            assert bool(first) == (table in (name, "both"))
            assert others and not any(others)


def migrate(url, step, revision):
    engine = make_engine(url, foreign_keys=False)
    with write_connection(engine) as connection:
        step(schema.alembic_config(connection), revision)
        dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    engine.dispose()
    assert not dangling


def rows_of(url):
    """Every table's rows as the database has them, in order; proofs by the name since 0009."""
    with sqlite3.connect(file_of(url)) as connection:
        connection.row_factory = sqlite3.Row
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [name for (name,) in tables if name != schema.VERSION_TABLE]
        return {
            PROOFS.get(name, name): [
                dict(row) for row in connection.execute(f"SELECT * FROM {name} ORDER BY id")
            ]
            for name in names
        }


def ids(rows):
    return {row["id"] for row in rows}


def kept(rows, below, revision):
    found = without_cold(rows) if revision == "0003" else rows
    if revision == "0021":
        keys = [{"plan_id": None, **row} for row in found["idempotency_keys"]]
        found = {**found, "idempotency_keys": keys}
    return {
        table: [{name: row[name] for name in below[table][0]} for row in found[table]]
        for table in below
    }


def without_cold(rows):
    cold = {table: {row["id"] for row in rows[table] if row["cache"] == "cold"} for table in WORK}
    return {
        table: [
            row
            for row in found
            if row["id"] not in cold.get(table, ())
            and row.get("job_id") not in cold["jobs"]
            and row.get("schedule_id") not in cold["schedules"]
        ]
        for table, found in rows.items()
    }


def copy_as_of(url, file, revision):
    """A database as the code of `revision` made it, with what its tables can hold of another."""
    old = f"sqlite:///{file}"
    migrate(old, command.upgrade, revision)
    with sqlite3.connect(file) as connection:
        for since, rows in rows_of(url).items():
            table = next((old for old, new in PROOFS.items() if new == since), since)
            known = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            if not known:
                continue
            marks = ", ".join("?" for _ in known)
            connection.executemany(
                f"INSERT INTO {table} ({', '.join(known)}) VALUES ({marks})",
                [[row[name] for name in known] for row in rows],
            )
    connection.close()
    return old


@pytest.mark.full
def test_an_upgrade_says_of_jobs_that_ended_early_that_they_are_not_complete(url, submit, tuned):
    cancelled = submit(OTHER)
    with write_connection(make_engine(url, foreign_keys=False)) as connection:
        command.downgrade(schema.alembic_config(connection), "0004")
        connection.exec_driver_sql(f"UPDATE jobs SET state = 'cancelled' WHERE id = {cancelled}")
    schema.upgrade(url)
    with make_engine(url).begin() as connection:
        found = dict(connection.exec_driver_sql("SELECT id, complete FROM jobs").all())
    assert found == {tuned: 1, cancelled: 0}


def test_a_batch_that_rebuilds_a_table_under_the_views_leaves_them_as_they_were(url, tuned):
    def shown(connection):
        names = inspect(connection).get_view_names()
        return {n: connection.exec_driver_sql(f"SELECT count(*) FROM {n}").scalar() for n in names}

    with write_connection(make_engine(url, foreign_keys=False)) as connection:
        before = shown(connection)
        with (
            Operations.context(MigrationContext.configure(connection)) as operations,
            replaced(v0018.views, v0018.views),
            operations.batch_alter_table("trials", recreate="always") as trials,
        ):
            trials.alter_column("hash", type_=String(20))
        assert shown(connection) == before and len(before) == 8


@pytest.mark.full
def test_a_job_of_before_0009_gets_its_machine_where_that_is_known(tmp_path, populated, machine):
    old = copy_as_of(populated, tmp_path / "old.db", "0008")
    with sqlite3.connect(tmp_path / "old.db") as connection:
        connection.execute(
            "INSERT INTO machines (host, cpu, cores, memory_bytes, caches, seen_at) "
            "SELECT 'another', cpu, cores, memory_bytes, caches, seen_at FROM machines"
        )
        (count,) = connection.execute("SELECT count(*) FROM jobs WHERE started_at IS NOT NULL")
    schema.upgrade(old)
    found = rows_of(old)["jobs"]
    assert {row["host"] for row in found if row["state"] == "done"} == {machine.host}
    assert {row["host"] for row in found if row["state"] == "queued"} == {None}
    assert count[0] == 2


@pytest.mark.full
def test_a_database_of_0010_gets_views_with_the_seconds_of_their_moments(url, tuned):
    with write_connection(make_engine(url, foreign_keys=False)) as connection:
        command.downgrade(schema.alembic_config(connection), "0010")
        connection.exec_driver_sql("UPDATE trials SET created_at = '2026-01-31 12:59:59.999653'")
        connection.exec_driver_sql("DROP VIEW trial_history")
        connection.exec_driver_sql(
            "CREATE VIEW trial_history AS"
            " SELECT CAST(strftime('%s', created_at) AS INTEGER) AS hour_unix FROM trials"
        )
    schema.upgrade(url)
    with make_engine(url).begin() as connection:
        found = connection.exec_driver_sql("SELECT hour_unix, created_unix FROM trial_history")
        assert set(found.all()) == {(1769860800, 1769864399.999653)}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_going_down_from_0021_and_up_again_keeps_models_and_plans(kind, request, tmp_path):
    """A store with plans in each state, a model, and a key whose request was answered by a plan."""
    url = f"sqlite:///{tmp_path / 'new.db'}"
    if kind == "postgresql":
        url = request.getfixturevalue("new_postgresql")()
    dumps.load(url, "0020")
    fill_plans(url)
    before = dumps.tables_of(url)
    for _twice in range(2):
        dumps.migrate(url, command.upgrade, "0021")
        above = dumps.tables_of(url)
        models_of = {row["id"]: row for row in above["jobs"] if row["kind"] == "model"}
        assert len(models_of) == len(before["plans"]) + len(before["networks"])
        for table in ("plans", "networks"):
            for old, new in zip(before[table], above[table], strict=True):
                job = models_of[new["job_id"]]
                assert {name: {**job, **new}[name] for name in old} == old
        (done,) = (row for row in above["plans"] if row["script"])
        assert [row["job_id"] for row in above["idempotency_keys"]] == [None, done["job_id"]]
        dumps.migrate(url, command.downgrade, "0020")
        assert dumps.tables_of(url) == before


def fill_plans(url):
    """Add plans in other states beside the one that waits, one of them with a result."""
    engine = make_engine(url)
    with engine.begin() as connection:
        names = [column["name"] for column in inspect(connection).get_columns("plans")]
        same = ", ".join(name for name in names if name not in ("id", "state", "owner", "name"))
        for state in ("running", "done", "failed", "cancelled"):
            connection.exec_driver_sql(
                f"INSERT INTO plans ({same}, state, owner, name) SELECT {same}, '{state}', "
                f"'host:1:1', '{state}.mlir' FROM plans WHERE state = 'queued'"
            )
        connection.exec_driver_sql(
            "UPDATE plans SET script = 'module {}', script_error = 'none', error = 'x', worker = "
            "'host:2:2', epoch = 3, crashes = 2, phase = 'proving', heartbeat_at = created_at, "
            "started_at = created_at, finished_at = created_at WHERE state = 'done'"
        )
        connection.exec_driver_sql(
            "INSERT INTO idempotency_keys (subject, key, request, plan_id, created_at) "
            "SELECT subject, 'of a plan', request, (SELECT id FROM plans WHERE state = 'done'), "
            "created_at FROM idempotency_keys"
        )
    engine.dispose()


@pytest.mark.full
@pytest.mark.parametrize("running", [None, 5])
def test_of_equal_plans_an_upgrade_keeps_the_first_or_the_one_that_runs(url, plan, look, running):
    """A server made two where two asked at one moment, before 0016."""
    first, done = plan(), plan(name="done.mlir")
    with write_connection(make_engine(url, foreign_keys=False)) as connection:
        command.downgrade(schema.alembic_config(connection), "0015")
        names = [row[1] for row in connection.exec_driver_sql("PRAGMA table_info(plans)")]
        same = ", ".join(name for name in names if name != "id")
        connection.exec_driver_sql(f"UPDATE plans SET state = 'done' WHERE id = {done}")
        for _twice in range(2):
            connection.exec_driver_sql(f"INSERT INTO plans ({same}) SELECT {same} FROM plans")
        if running:
            connection.exec_driver_sql(
                f"UPDATE plans SET state = 'running', owner = 'me', heartbeat_at = created_at"
                f" WHERE id = {running}"
            )
    schema.upgrade(url)
    kept = running or first
    assert look(kept).state == ("running" if running else "queued") and look(kept).source
    assert [look(number).state for number in (2, 4, 6, 8)] == ["done"] * 4
    for number in {1, 3, 5, 7} - {kept}:
        row = look(number)
        assert row.state == "failed" and "same moment" in row.error and row.finished_at
        assert row.source is None


def test_older_code_keeps_the_offers_of_leaders_and_loses_those_of_helpers(url, sessions, submit):
    number_of_job = submit(OTHER)
    with writing(sessions) as session:
        job = session.get_one(models.Job, number_of_job)
        for number, role in enumerate(("leader", "helper", "helper")):
            assert offers.give(session, job, f"tcp://w:{number}", "a-host:1:1", role)
    with write_connection(make_engine(url, foreign_keys=False)) as connection:
        command.downgrade(schema.alembic_config(connection), "0013")
        found = connection.exec_driver_sql("SELECT worker FROM offers").scalars().all()
    assert found == ["tcp://w:0"]


def test_a_cancelled_plan_is_a_failed_one_to_older_code(url, sessions, plan, look):
    number = plan()
    with writing(sessions) as session:
        model_jobs.cancel_plan(session, number)
    with write_connection(make_engine(url, foreign_keys=False)) as connection:
        command.downgrade(schema.alembic_config(connection), "0015")
    schema.upgrade(url)
    assert (look(number).state, look(number).error) == ("failed", "it was cancelled")


def test_older_code_is_not_left_a_plan_that_must_be_strict(url, sessions, machine, plan, look):
    first = plan()
    with writing(sessions) as session:
        strict = model_jobs.ask_to_plan(
            session, wanted(machine.target, "strict"), TOOLCHAIN, Submitter()
        ).id
    with write_connection(make_engine(url, foreign_keys=False)) as connection:
        command.downgrade(schema.alembic_config(connection), "0016")
    schema.upgrade(url)
    assert [look(number).state for number in (first, strict)] == ["queued", "failed"]
    assert look(strict).error == "it asked for accuracy=strict"
    assert look(strict).source is None


def test_upgrading_twice_keeps_the_data(url, sessions, tuned):
    schema.upgrade(url)
    with reading(sessions) as session:
        assert session.query(models.Trial).count() == 4
        assert session.query(models.Script).count() == 1


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'half.db'}"

    def fail(_connection):
        raise RuntimeError("killed")

    monkeypatch.setattr(schema, "_check_references", fail)
    with pytest.raises(RuntimeError):
        schema.upgrade(url)
    with sqlite3.connect(tmp_path / "half.db") as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def test_deleting_a_schedule_takes_its_scripts_and_proofs(sessions, tuned):
    with sessions.begin() as session:
        session.query(models.Schedule).delete()
    with reading(sessions) as session:
        assert session.query(models.Script).count() == 0
        assert session.query(models.Proof).count() == 0
