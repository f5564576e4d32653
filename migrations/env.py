"""Run the migrations on the connection that `tilewise.service.db.schema` hands over."""

from alembic import context
from sqlalchemy import Connection, text

# Any number; the same for every process that migrates.
ADVISORY_LOCK = 7_445_001


def print_sql(dialect: str) -> None:
    """Write the SQL for a kind of database instead of running it."""
    context.configure(dialect_name=dialect, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


def run_on(connection: Connection) -> None:
    """Migrate inside the connection's transaction, which the caller commits."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL lock_timeout = '10s'"))
        connection.execute(text(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"))
    context.configure(
        connection=connection,
        target_metadata=context.config.attributes.get("metadata"),
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    print_sql(context.config.attributes["dialect"])
else:
    run_on(context.config.attributes["connection"])
