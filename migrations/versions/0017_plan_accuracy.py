"""Plans: how accurate the methods of their problems have to be."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

ACTIVE = "state IN ('queued', 'running')"
SAME = ["sha256", "name", "target", "toolchain_id", "trials", "seed", "cache", "layouts"]


def upgrade() -> None:
    op.drop_index(op.f("uq_plans_active"), "plans")
    with op.batch_alter_table("plans") as plans:
        plans.add_column(
            sa.Column("accuracy", sa.String(8), nullable=False, server_default="standard")
        )
    _index([*SAME, "accuracy"])


def downgrade() -> None:
    _fail_strict()
    op.drop_index(op.f("uq_plans_active"), "plans")
    with op.batch_alter_table("plans") as plans:
        plans.drop_column("accuracy")
    _index(SAME)


def _index(columns: list[str]) -> None:
    op.create_index(
        op.f("uq_plans_active"),
        "plans",
        columns,
        unique=True,
        sqlite_where=sa.text(ACTIVE),
        postgresql_where=sa.text(ACTIVE),
    )


def _fail_strict() -> None:
    """Fail what waits or is made with another accuracy: the code before knows of none."""
    op.execute(
        sa.text(
            "UPDATE plans SET state = 'failed', error = 'it asked for accuracy=strict', "
            "owner = NULL, worker = NULL, heartbeat_at = NULL, phase = NULL, module = NULL, "
            "graph = NULL, finished_at = CURRENT_TIMESTAMP "
            f"WHERE {ACTIVE} AND accuracy <> 'standard'"
        )
    )
