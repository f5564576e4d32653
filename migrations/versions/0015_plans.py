"""Plans of whole models, and keys of the requests that asked for them."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "plans",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("target", sa.String(100), nullable=False),
        sa.Column("toolchain_id", sa.Integer(), nullable=False),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("cache", sa.String(8), nullable=False),
        sa.Column("layouts", sa.String(8), nullable=False),
        sa.Column("problems", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("variants", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("skipped", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("graph", sa.JSON(none_as_null=True)),
        sa.Column("module", sa.LargeBinary()),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("owner", sa.String(300)),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True)),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("unserved_since", sa.DateTime(timezone=True)),
        sa.Column("phase", sa.String(32)),
        sa.Column("plan", sa.JSON(none_as_null=True)),
        sa.Column("totals", sa.JSON(none_as_null=True)),
        sa.Column("script", sa.Text()),
        sa.Column("proof", sa.JSON(none_as_null=True)),
        sa.Column("script_error", sa.Text()),
        sa.Column("digest", sa.String(64)),
        sa.Column("error", sa.Text()),
        sa.Column("token_id", sa.Integer()),
        sa.Column("request_id", sa.String(64)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'done', 'failed')", name=op.f("ck_plans_state")
        ),
        sa.CheckConstraint(
            "state <> 'running' OR owner IS NOT NULL", name=op.f("ck_plans_running_has_owner")
        ),
        sa.ForeignKeyConstraint(
            ["toolchain_id"], ["toolchains.id"], name=op.f("fk_plans_toolchain_id_toolchains")
        ),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name=op.f("fk_plans_token_id_tokens")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plans")),
    )
    op.create_index(op.f("ix_plans_state"), "plans", ["state", "target"])
    with op.batch_alter_table("idempotency_keys") as keys:
        keys.add_column(sa.Column("plan_id", sa.Integer()))
        keys.create_foreign_key(
            op.f("fk_idempotency_keys_plan_id_plans"),
            "plans",
            ["plan_id"],
            ["id"],
            ondelete="CASCADE",
        )


def downgrade() -> None:
    op.execute(sa.text("DELETE FROM idempotency_keys WHERE plan_id IS NOT NULL"))
    with op.batch_alter_table("idempotency_keys") as keys:
        keys.drop_constraint(op.f("fk_idempotency_keys_plan_id_plans"), type_="foreignkey")
        keys.drop_column("plan_id")
    op.drop_index(op.f("ix_plans_state"), "plans")
    op.drop_table("plans")
