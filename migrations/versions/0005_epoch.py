"""The number of a job's present run, which what the run writes carries.

A job that failed or was cancelled did not spend its budget, and every job that has ended says so.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs") as table:
        table.add_column(sa.Column("epoch", sa.Integer(), nullable=False, server_default="0"))
    with op.batch_alter_table("jobs") as table:
        table.alter_column("epoch", server_default=None)
    jobs = sa.table("jobs", sa.column("state", sa.String), sa.column("complete", sa.Boolean))
    ended_early = jobs.c.state.in_(("failed", "cancelled")) & jobs.c.complete.is_(None)
    op.execute(jobs.update().where(ended_early).values(complete=False))


def downgrade() -> None:
    with op.batch_alter_table("jobs") as table:
        table.drop_column("epoch")
