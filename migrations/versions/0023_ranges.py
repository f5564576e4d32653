"""Variants that serve ranges of sizes."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tuned_ranges",
        sa.Column("id", sa.Integer(), nullable=False),
        *(
            sa.Column(name, sa.Integer(), nullable=False)
            for name in ("problem_id", "toolchain_id", "machine_id", "job_id")
        ),
        sa.Column("target", sa.String(500), nullable=False),
        sa.Column("cache", sa.String(8), nullable=False),
        sa.Column("family", sa.String(64), nullable=False),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=False),
        *(
            sa.Column(name, sa.Double(), nullable=False)
            for name in ("loss_mean", "loss_worst", "elapsed_s")
        ),
        sa.Column("budget", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        *(
            sa.ForeignKeyConstraint(
                [f"{name}_id"], [f"{name}s.id"], name=op.f(f"fk_tuned_ranges_{name}_id_{name}s")
            )
            for name in ("problem", "toolchain", "machine", "job")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuned_ranges")),
        sa.UniqueConstraint(
            "problem_id",
            "target",
            "toolchain_id",
            "cache",
            name=op.f("uq_tuned_ranges_problem_id_target_toolchain_id_cache"),
        ),
    )
    op.create_index("ix_tuned_ranges_family", "tuned_ranges", ["family", "target"])


def downgrade() -> None:
    op.drop_table("tuned_ranges")
    op.execute("DELETE FROM jobs WHERE kind = 'range'")
