"""Plans: cancelled ones, one active of a kind, who makes them, in which order problems ended."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

ACTIVE = "state IN ('queued', 'running')"
STATES = "state IN ('queued', 'running', 'done', 'failed'{})"
SAME = ("sha256", "name", "target", "toolchain_id", "trials", "seed", "cache", "layouts")


def upgrade() -> None:
    alike = " AND ".join(f"first.{column} = plans.{column}" for column in SAME)
    _end(
        "an equal plan was asked for at the same moment; see that one",
        f"{ACTIVE} AND EXISTS (SELECT 1 FROM plans AS first WHERE first.{ACTIVE} AND {alike} AND "
        "(first.state = plans.state AND first.id < plans.id OR "
        "first.state = 'running' AND plans.state = 'queued'))",
    )
    with op.batch_alter_table("plans") as plans:
        plans.drop_constraint(op.f("ck_plans_state"), type_="check")
        plans.create_check_constraint(op.f("ck_plans_state"), STATES.format(", 'cancelled'"))
        plans.add_column(sa.Column("worker", sa.String(300)))
    op.create_index(
        op.f("uq_plans_active"),
        "plans",
        list(SAME),
        unique=True,
        sqlite_where=sa.text(ACTIVE),
        postgresql_where=sa.text(ACTIVE),
    )
    op.create_table(
        "plan_endings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("plan_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["plan_id"],
            ["plans.id"],
            name=op.f("fk_plan_endings_plan_id_plans"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plan_endings")),
        sa.UniqueConstraint("plan_id", "number", name=op.f("uq_plan_endings_plan_id_number")),
        sa.UniqueConstraint("plan_id", "part", name=op.f("uq_plan_endings_plan_id_part")),
    )


def downgrade() -> None:
    op.drop_table("plan_endings")
    op.drop_index(op.f("uq_plans_active"), "plans")
    _end("it was cancelled", "state = 'cancelled'")
    with op.batch_alter_table("plans") as plans:
        plans.drop_constraint(op.f("ck_plans_state"), type_="check")
        plans.create_check_constraint(op.f("ck_plans_state"), STATES.format(""))
        plans.drop_column("worker")


def _end(error: str, where: str) -> None:
    """Fail some plans, and drop what those that have ended do not need."""
    op.execute(
        sa.text(
            f"UPDATE plans SET state = 'failed', error = '{error}', owner = NULL, "
            "heartbeat_at = NULL, phase = NULL, module = NULL, graph = NULL, "
            f"finished_at = COALESCE(finished_at, CURRENT_TIMESTAMP) WHERE {where}"
        )
    )
