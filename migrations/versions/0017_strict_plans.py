"""Plans: how accurate their problems are to be; modules and graphs in rows that no lease writes."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

ACTIVE = "state IN ('queued', 'running')"
SAME = ["sha256", "name", "target", "toolchain_id", "trials", "seed", "cache", "layouts"]


def upgrade() -> None:
    op.create_table(
        "plan_sources",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("plan_id", sa.Integer(), nullable=False),
        sa.Column("graph", sa.JSON(none_as_null=True)),
        sa.Column("module", sa.LargeBinary()),
        sa.ForeignKeyConstraint(
            ["plan_id"],
            ["plans.id"],
            name=op.f("fk_plan_sources_plan_id_plans"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plan_sources")),
        sa.UniqueConstraint("plan_id", name=op.f("uq_plan_sources_plan_id")),
    )
    _run(
        "INSERT INTO plan_sources (plan_id, graph, module) SELECT id, graph, module FROM plans "
        f"WHERE {ACTIVE}"
    )
    op.drop_index(op.f("uq_plans_active"), "plans")
    with op.batch_alter_table("plans") as plans:
        plans.drop_column("graph")
        plans.drop_column("module")
        plans.add_column(
            sa.Column("accuracy", sa.String(8), nullable=False, server_default="standard")
        )
    _index([*SAME, "accuracy"])


def downgrade() -> None:
    op.drop_index(op.f("uq_plans_active"), "plans")
    with op.batch_alter_table("plans") as plans:
        plans.add_column(sa.Column("graph", sa.JSON(none_as_null=True)))
        plans.add_column(sa.Column("module", sa.LargeBinary()))
    source = "(SELECT {} FROM plan_sources WHERE plan_id = plans.id)"
    _run(f"UPDATE plans SET graph = {source.format('graph')}, module = {source.format('module')}")
    op.drop_table("plan_sources")
    _run(  # the code before knows of no other accuracy
        "UPDATE plans SET state = 'failed', error = 'it asked for accuracy=strict', owner = NULL, "
        "worker = NULL, heartbeat_at = NULL, phase = NULL, module = NULL, graph = NULL, "
        f"finished_at = CURRENT_TIMESTAMP WHERE {ACTIVE} AND accuracy <> 'standard'"
    )
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


def _run(statement: str) -> None:
    op.execute(sa.text(statement))
