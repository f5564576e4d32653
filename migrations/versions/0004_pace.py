"""The machine's pace during a trial, as its control told it."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("trials") as table:
        table.add_column(sa.Column("pace", sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("trials") as table:
        table.drop_column("pace")
