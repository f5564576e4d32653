import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import String, inspect, text

from tilewise.migrations.views import v0010
from tilewise.migrations.views.replacing import replaced
from tilewise.service.db import make_engine, schema
from tilewise.service.db.base import Base
from tilewise.service.db.session import write_connection
from tilewise.service.jobs import retention


@pytest.fixture
def url(new_postgresql) -> str:
    made = new_postgresql()
    schema.upgrade(made)
    return made


def test_models_and_migrations_agree(url):
    engine = make_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_who_reads_a_view_still_does_when_a_migration_has_made_it_again(url):
    engine = make_engine(url)
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
    engine.dispose()


def test_space_is_given_back(sessions):
    retention.give_back(sessions.kw["bind"])
