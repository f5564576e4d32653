from collections.abc import Iterator

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from fastapi.testclient import TestClient
from sqlalchemy import String, inspect, text

from tests.service import fakes
from tests.service.conftest import TOOLCHAIN, settings_for
from tilewise.migrations.views import v0010
from tilewise.migrations.views.replacing import replaced
from tilewise.service.app import create_app
from tilewise.service.db import make_engine, schema, writing
from tilewise.service.db.base import Base
from tilewise.service.db.session import write_connection
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, retention
from tilewise.service.runs.keeper import SqlKeeper
from tilewise.service.workers.job_run import run_job


@pytest.fixture
def url(new_postgresql) -> str:
    made = new_postgresql()
    schema.upgrade(made)
    return made


@pytest.fixture
def client(url, machine) -> Iterator[TestClient]:
    app = create_app(settings_for(url), 0, machine=machine, toolchain=TOOLCHAIN)
    with TestClient(app) as made:
        yield made


def run(sessions, machine, job_id):
    with writing(sessions) as session:
        held = lease.claim_one(session, job_id, me())
    return run_job(SqlKeeper(sessions, held), tuner=fakes.tune, prover=fakes.prove, machine=machine)


def test_models_and_migrations_agree(url):
    engine = make_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def step(url, way, revision):
    engine = make_engine(url)
    with write_connection(engine) as connection:
        way(schema.alembic_config(connection), revision)
    engine.dispose()


def tables_of(url):
    engine = make_engine(url)
    with engine.connect() as connection:
        names = set(inspect(connection).get_table_names()) - {schema.VERSION_TABLE}
        rows = {
            name: [tuple(row) for row in connection.execute(text(f"SELECT * FROM {name}"))]
            for name in names
        }
    engine.dispose()
    return rows


@pytest.mark.full
def test_revision_0009_goes_down_and_up_again_with_data(url, sessions, machine, submit):
    if "features=" in machine.target:
        pytest.skip("revisions of before 0019 have no such target")
    run(sessions, machine, submit())
    before = tables_of(url)
    assert before["script_proofs"] and len(before["jobs"]) == 1
    step(url, command.downgrade, "0008")
    below = tables_of(url)
    assert below["proofs"] == before["script_proofs"] and "script_proofs" not in below
    step(url, command.upgrade, "head")
    after = tables_of(url)
    assert {name: sorted(map(str, rows)) for name, rows in after.items()} == {
        name: sorted(map(str, rows)) for name, rows in before.items()
    }
    run(sessions, machine, submit("matmul:m=9,n=9,k=9,dtype=f32"))
    assert len(tables_of(url)["script_proofs"]) == 2, "the numbers go on"


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


def test_metrics_and_readiness(client, sessions, machine, submit):
    assert run(sessions, machine, submit()).state == "done"
    assert 'tilewise_trials_total{outcome="timed"} 4.0' in client.get("/metrics").text
    assert client.get("/readyz").json()["checks"]["database"] == "ok"


def test_space_is_given_back(sessions):
    retention.give_back(sessions.kw["bind"])
