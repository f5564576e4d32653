"""Digests of what schedules and proofs claim, and indexes for what is asked of very many rows.

Rows that agree with themselves get a digest, so that an older database goes on serving them.
The others get none, and are refused until a search has replaced them.
"""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import context, op

from tilewise.migrations.digests import (
    Row,
    proof_digest,
    proofs_query,
    schedule_digest,
    schedules_query,
)

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_jobs_state_id": ("jobs", ["state", "id"]),
    "ix_jobs_work": ("jobs", ["problem_id", "target", "toolchain_id", "cache"]),
    "ix_trials_ended": ("trials", ["job_id", "state", "gflops", "time_us"]),
}
ROWS_AT_ONCE = 1000


def upgrade() -> None:
    for table in ("schedules", "proofs"):
        with op.batch_alter_table(table) as changed:
            changed.add_column(sa.Column("digest", sa.String(length=64), nullable=True))
    for name, (table, columns) in INDEXES.items():
        op.create_index(name, table, columns)
    if not context.is_offline_mode():
        connection = op.get_bind()
        seal(connection, "schedules", schedules_query(), schedule_digest)
        seal(connection, "proofs", proofs_query(), proof_digest)


def downgrade() -> None:
    for name, (table, _) in reversed(INDEXES.items()):
        op.drop_index(name, table_name=table)
    for table in ("proofs", "schedules"):
        with op.batch_alter_table(table) as changed:
            changed.drop_column("digest")


def seal(
    connection: sa.Connection, name: str, query: sa.Select[Any], digest: Callable[[Row], str | None]
) -> None:
    """Give every row of a table its digest, those without one excepted."""
    row_id = query.selected_columns["id"]
    table = sa.table(name, sa.column("id"), sa.column("digest"))
    update = (
        sa.update(table)
        .where(table.c.id == sa.bindparam("row"))
        .values(digest=sa.bindparam("made"))
    )
    last = 0
    while True:
        page = query.where(row_id > last).order_by(row_id).limit(ROWS_AT_ONCE)
        rows = connection.execute(page).mappings().all()
        if not rows:
            return
        last = rows[-1]["id"]
        made = [{"row": row["id"], "made": digest(row)} for row in rows]
        if found := [values for values in made if values["made"] is not None]:
            connection.execute(update, found)
