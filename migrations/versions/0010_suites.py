"""Reports of suites, and the bandwidth of machines' memory."""

import sqlalchemy as sa
from alembic import op

from tilewise.migrations.views import v0009, v0010
from tilewise.migrations.views.replacing import replaced

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with replaced(v0009.views, v0010.views):
        op.add_column("machines", sa.Column("bandwidth_gbs", sa.Double(), nullable=True))
        op.create_table(
            "suite_reports",
            sa.Column("id", sa.Integer(), nullable=False),
            sa.Column("suite", sa.String(200), nullable=False),
            sa.Column("source", sa.Text(), nullable=False),
            sa.Column("target", sa.String(100), nullable=False),
            sa.Column("processor", sa.String(200), nullable=False),
            sa.Column("toolchain_id", sa.Integer(), nullable=False),
            sa.Column("counted", sa.Integer(), nullable=False),
            sa.Column("left_out", sa.Integer(), nullable=False),
            *(
                sa.Column(name, sa.Double())
                for name in ("geomean_ratio", "ours_gflops", "oracle_gflops")
            ),
            sa.Column("sha256", sa.String(64), nullable=False),
            sa.Column("report", sa.JSON(none_as_null=True), nullable=False),
            sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
            sa.ForeignKeyConstraint(
                ["toolchain_id"],
                ["toolchains.id"],
                name=op.f("fk_suite_reports_toolchain_id_toolchains"),
            ),
            sa.PrimaryKeyConstraint("id", name=op.f("pk_suite_reports")),
            sa.UniqueConstraint("sha256", name=op.f("uq_suite_reports_sha256")),
        )
        op.create_index("ix_suite_reports_place", "suite_reports", ["suite", "target", "id"])


def downgrade() -> None:
    with replaced(v0010.views, v0009.views):
        op.drop_table("suite_reports")
        with op.batch_alter_table("machines") as machines:
            machines.drop_column("bandwidth_gbs")
