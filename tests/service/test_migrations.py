"""Migrations and models say the same, and data survives what it can."""

import io
import sqlite3

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, inspect

from service.db import make_engine, models, reading, schema
from service.db.base import Base
from service.db.session import write_connection


def test_there_is_one_head():
    assert len(ScriptDirectory.from_config(schema.config()).get_heads()) == 1


def test_models_and_migrations_agree(url):
    engine = make_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == [], "python -m service.db.draft TEXT"


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


def test_every_step_goes_down_and_up_again_with_data(url, sessions, tuned):
    for step in ScriptDirectory.from_config(schema.config()).walk_revisions():
        engine = make_engine(url, foreign_keys=False)
        with write_connection(engine) as connection:
            command.downgrade(schema.config(connection), step.down_revision or "base")
    with make_engine(url).connect() as connection:
        assert inspect(connection).get_table_names() == [schema.VERSION_TABLE]
    schema.upgrade(url)
    with reading(sessions) as session:
        assert session.query(models.Trial).count() == 0


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


def test_the_migrations_can_be_written_for_postgresql():
    made = schema.config()
    made.attributes["dialect"] = "postgresql"
    made.output_buffer = io.StringIO()
    command.upgrade(made, "head", sql=True)
    sql = made.output_buffer.getvalue()
    assert "TIMESTAMP WITH TIME ZONE" in sql
    assert "WHERE state IN ('queued', 'running')" in sql


def test_deleting_a_schedule_takes_its_scripts_and_proofs(sessions, tuned):
    with sessions.begin() as session:
        session.query(models.Schedule).delete()
    with reading(sessions) as session:
        assert session.query(models.Script).count() == 0
        assert session.query(models.Proof).count() == 0
