"""Whole models: the problems of a module that was asked for as one."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "networks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("target", sa.String(100), nullable=False),
        sa.Column("toolchain_id", sa.Integer(), nullable=False),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("cache", sa.String(8), nullable=False),
        sa.Column("problems", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("skipped", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("token_id", sa.Integer()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["toolchain_id"], ["toolchains.id"], name=op.f("fk_networks_toolchain_id_toolchains")
        ),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_networks_token_id_tokens")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_networks")),
    )


def downgrade() -> None:
    op.drop_table("networks")
