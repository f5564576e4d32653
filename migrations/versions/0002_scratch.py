"""The scratch memory that the best schedule takes, by operand."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("schedules") as table:
        table.add_column(sa.Column("scratch_bytes", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("schedules") as table:
        table.drop_column("scratch_bytes")
