"""Whether schedules are timed with hot or cold caches, and how a result's speed was had."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ACTIVE = sa.text("state IN ('queued', 'running')")
WORK = ["problem_id", "target", "toolchain_id"]
ONE_BEST = "uq_schedules_problem_id_target_toolchain_id"


def upgrade() -> None:
    for name in ("jobs", "schedules"):
        with op.batch_alter_table(name) as table:
            table.add_column(
                sa.Column("cache", sa.String(length=8), nullable=False, server_default="hot")
            )
        with op.batch_alter_table(name) as table:
            table.alter_column("cache", server_default=None)
    with op.batch_alter_table("schedules") as table:
        table.add_column(sa.Column("measured", sa.JSON(), nullable=True))
        table.drop_constraint(ONE_BEST, type_="unique")
        table.create_unique_constraint(f"{ONE_BEST}_cache", [*WORK, "cache"])
    _index_active([*WORK, "cache"])


def downgrade() -> None:
    # SQLite does not watch foreign keys in a migration, so nothing cascades.
    for children, parent in (("proofs", "schedule"), ("scripts", "schedule"), ("trials", "job")):
        op.execute(
            f"DELETE FROM {children} WHERE {parent}_id IN "
            f"(SELECT id FROM {parent}s WHERE cache <> 'hot')"
        )
    op.execute("DELETE FROM schedules WHERE cache <> 'hot'")
    op.execute("DELETE FROM jobs WHERE cache <> 'hot'")
    _index_active(WORK)
    with op.batch_alter_table("schedules") as table:
        table.drop_constraint(f"{ONE_BEST}_cache", type_="unique")
        table.create_unique_constraint(ONE_BEST, WORK)
        table.drop_column("measured")
        table.drop_column("cache")
    with op.batch_alter_table("jobs") as table:
        table.drop_column("cache")


def _index_active(columns: list[str]) -> None:
    op.drop_index("uq_jobs_active", table_name="jobs")
    op.create_index(
        "uq_jobs_active", "jobs", columns, unique=True, sqlite_where=ACTIVE, postgresql_where=ACTIVE
    )
