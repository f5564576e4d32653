import sqlite3

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, String, inspect, select, text

from tests.service import fakes
from tests.service.db.released import dumps
from tests.service.db.test_database import file_of
from tilewise.migrations.views import v0010
from tilewise.migrations.views.replacing import replaced
from tilewise.service.db import make_engine, models, schema, writing
from tilewise.service.db.base import Base
from tilewise.service.db.session import write_connection
from tilewise.service.jobs import retention
from tilewise.service.runs import offers

OTHER = "matmul:m=8,n=8,k=8,dtype=f32"
WORK = ("jobs", "schedules")
SAME = object()
# What a step that goes down and up again leaves in its own columns.
COLUMNS = {
    "0002": {("schedules", "scratch_bytes"): None},
    "0003": {
        ("jobs", "cache"): "hot", ("schedules", "cache"): "hot", ("schedules", "measured"): None,
    },
    "0004": {("trials", "pace"): None},
    "0005": {("jobs", "epoch"): 0},
    "0006": {("schedules", "digest"): SAME, ("script_proofs", "digest"): SAME},
    "0008": {
        ("jobs", "phase"): None, ("jobs", "token_id"): None,
        ("machines", "peaks"): None, ("trials", "samples_taken"): None,
    },
    "0009": {("jobs", "host"): SAME},
    "0010": {("machines", "bandwidth_gbs"): None},
    "0013": {("jobs", "unserved_since"): None},
    "0014": {("jobs", "spread"): 1},
}  # fmt: skip


@pytest.fixture
def upgraded_postgresql(new_postgresql):
    made = new_postgresql()
    schema.upgrade(made)
    return made


@pytest.mark.parametrize("database", ["url", "upgraded_postgresql"])
def test_models_and_migrations_agree(database, request):
    engine = make_engine(request.getfixturevalue(database))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == [], (
            "python -m tilewise.service.db.draft_migration TEXT"
        )
    engine.dispose()


def test_checks_agree_in_name_and_text(url):
    """Alembic does not compare checks."""
    migrated = inspect(make_engine(url))
    for table in Base.metadata.sorted_tables:
        checks = [one for one in table.constraints if isinstance(one, CheckConstraint)]
        declared = {str(check.name): str(check.sqltext) for check in checks}
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


@pytest.mark.full
def test_every_step_goes_down_and_up_again_with_data(populated):
    steps = ScriptDirectory.from_config(schema.alembic_config())
    assert steps.get_heads() == [schema.HEAD]
    for step in steps.walk_revisions():
        before = dumps.tables_of(populated)
        # Targets lose features that are not those of the processor's name, with their digests.
        renames = step.revision == "0019" and "features=" in before["jobs"][0]["target"]
        migrate(populated, command.downgrade, step.down_revision or "base")
        below = dumps.tables_of(populated)
        assert renames or below == kept(before, below, step.revision), step.doc
        migrate(populated, command.upgrade, step.revision)
        again = dumps.tables_of(populated)
        assert renames or kept(again, below, step.revision) == below, step.doc
        for table, column in COLUMNS.get(step.revision, {}):
            found = {row["id"]: row[column] for row in again[table]}
            expected = dict.fromkeys(found, COLUMNS[step.revision][table, column])
            if SAME in expected.values():
                expected = {row["id"]: row[column] for row in before[table] if row["id"] in found}
            assert found == expected, (table, column)
        migrate(populated, command.downgrade, step.down_revision or "base")
    assert dumps.tables_of(populated) == {}


def migrate(url, step, revision):
    dumps.migrate(url, step, revision)
    with sqlite3.connect(file_of(url)) as connection:
        assert not connection.execute("PRAGMA foreign_key_check").fetchall()


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
    jobs, schedules = (
        {row["id"] for row in rows[table] if row["cache"] == "cold"} for table in WORK
    )

    def is_kept(table, row):
        own = {"jobs": jobs, "schedules": schedules}.get(table, ())
        of_cold = row.get("job_id") in jobs or row.get("schedule_id") in schedules
        return row["id"] not in own and not of_cold

    return {table: [row for row in found if is_kept(table, row)] for table, found in rows.items()}


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
    with writing(sessions) as session:
        session.query(models.Schedule).delete()
        assert not session.query(models.Script).count() + session.query(models.Proof).count()


def test_who_reads_a_view_still_does_when_a_migration_has_made_it_again(upgraded_postgresql):
    engine = make_engine(upgraded_postgresql)
    with write_connection(engine) as connection:
        connection.exec_driver_sql('CREATE ROLE "a reader"')
        connection.exec_driver_sql('GRANT SELECT ON proofs TO "a reader"')
        connection.exec_driver_sql("GRANT SELECT ON failures TO PUBLIC")
        with (
            Operations.context(MigrationContext.configure(connection)) as operations,
            replaced(v0010.views, v0010.views),
        ):
            operations.alter_column("jobs", "target", type_=String(120))
            assert "proofs" not in inspect(connection).get_view_names()
        rights = "SELECT has_table_privilege('{}', '{}', '{}')"
        for role, view, right, is_given in (
            ("a reader", "proofs", "SELECT", True),
            ("public", "proofs", "SELECT", False),
            ("public", "failures", "SELECT", True),
            ("a reader", "job_progress", "SELECT", False),
            ("a reader", "proofs", "DELETE", False),
        ):
            assert connection.scalar(text(rights.format(role, view, right))) is is_given
        connection.rollback()
        retention.give_back(engine)
    engine.dispose()
