"""Past results, the quality of results, known limits of scripts."""

import sqlalchemy as sa
from alembic import op

from tilewise.migrations.views import v0010, v0018
from tilewise.migrations.views.replacing import replaced

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with replaced(v0010.views, v0018.views):
        op.create_table(
            "past_schedules",
            sa.Column("id", sa.Integer(), nullable=False),
            *(
                sa.Column(name, sa.Integer(), nullable=False)
                for name in ("problem_id", "toolchain_id", "machine_id", "job_id")
            ),
            sa.Column("target", sa.String(100), nullable=False),
            sa.Column("cache", sa.String(8), nullable=False),
            sa.Column("hash", sa.String(16), nullable=False),
            sa.Column("steps", sa.JSON(none_as_null=True), nullable=False),
            *(
                sa.Column(name, sa.Double(), nullable=False)
                for name in ("gflops", "low", "high", "time_us", "peak_gflops")
            ),
            *(
                sa.Column(name, sa.JSON(none_as_null=True))
                for name in ("scratch_bytes", "peers", "measured")
            ),
            sa.Column("budget", sa.Integer(), nullable=False),
            sa.Column("elapsed_s", sa.Double(), nullable=False),
            sa.Column("complete", sa.Boolean(), nullable=False),
            sa.Column("digest", sa.String(64), nullable=False),
            sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
            sa.Column("was_best", sa.Boolean(), nullable=False),
            sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
            *(
                sa.ForeignKeyConstraint(
                    [f"{name}_id"],
                    [f"{name}s.id"],
                    name=op.f(f"fk_past_schedules_{name}_id_{name}s"),
                )
                for name in ("problem", "toolchain", "machine", "job")
            ),
            sa.PrimaryKeyConstraint("id", name=op.f("pk_past_schedules")),
        )
        op.create_index(
            "ix_past_schedules_work",
            "past_schedules",
            ["problem_id", "target", "toolchain_id", "cache"],
        )


def downgrade() -> None:
    with replaced(v0018.views, v0010.views):
        op.drop_table("past_schedules")
