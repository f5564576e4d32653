"""Jobs that spread over several machines: offers of helpers, and candidates on their way."""

import sqlalchemy as sa
from alembic import op

from tilewise.migrations.views import v0010
from tilewise.migrations.views.replacing import replaced

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with replaced(v0010.views, v0010.views):
        spread = sa.Column("spread", sa.Integer(), nullable=False, server_default="1")
        op.add_column("jobs", spread)
    with op.batch_alter_table("offers") as offers:
        offers.drop_constraint(op.f("uq_offers_job_id"), type_="unique")
        offers.add_column(sa.Column("role", sa.String(16), nullable=False, server_default="leader"))
        offers.add_column(
            sa.Column("is_recalled", sa.Boolean(), nullable=False, server_default=sa.false())
        )
    leads = sa.text("role = 'leader'")
    op.create_index(
        op.f("uq_offers_leader"),
        "offers",
        ["job_id"],
        unique=True,
        sqlite_where=leads,
        postgresql_where=leads,
    )
    op.create_index(op.f("ix_offers_job_id"), "offers", ["job_id"])
    op.create_table(
        "candidates",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("taken_by", sa.String(64)),
        sa.Column("taken_at", sa.DateTime(timezone=True)),
        sa.Column("answered_by", sa.String(64)),
        sa.Column("answer", sa.Text()),
        sa.Column("trial", sa.Integer()),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_candidates_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_candidates")),
        sa.UniqueConstraint(
            "job_id", "epoch", "number", name=op.f("uq_candidates_job_id_epoch_number")
        ),
    )


def downgrade() -> None:
    op.drop_table("candidates")
    op.drop_index(op.f("ix_offers_job_id"), "offers")
    op.drop_index(op.f("uq_offers_leader"), "offers")
    op.execute(sa.text("DELETE FROM offers WHERE role <> 'leader'"))
    with op.batch_alter_table("offers") as offers:
        offers.drop_column("is_recalled")
        offers.drop_column("role")
        offers.create_unique_constraint(op.f("uq_offers_job_id"), ["job_id"])
    with replaced(v0010.views, v0010.views):
        op.drop_column("jobs", "spread")
