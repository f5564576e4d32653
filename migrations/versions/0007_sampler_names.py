"""Longer names of samplers, which may be those of anybody's class: `module:Class`."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

NAMES = {"jobs": "sampler", "trials": "origin"}


def upgrade() -> None:
    for table, column in NAMES.items():
        with op.batch_alter_table(table) as changed:
            changed.alter_column(column, type_=sa.String(200), existing_type=sa.String(16))


def downgrade() -> None:
    for table, column in NAMES.items():
        name = sa.column(column)
        op.execute(
            sa.update(sa.table(table, name))
            .where(sa.func.length(name) > 16)
            .values({column: sa.func.substr(name, 1, 16)})
        )
        with op.batch_alter_table(table) as changed:
            changed.alter_column(column, type_=sa.String(16), existing_type=sa.String(200))
