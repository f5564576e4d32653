"""Jobs that are offered to workers of a cluster, and since when nobody serves a job's target."""

import sqlalchemy as sa
from alembic import op

from tilewise.migrations.views import v0010
from tilewise.migrations.views.replacing import replaced

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with replaced(v0010.views, v0010.views):
        op.add_column("jobs", sa.Column("unserved_since", sa.DateTime(timezone=True)))
    op.create_table(
        "offers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("driver", sa.String(300), nullable=False),
        sa.Column("worker", sa.String(300), nullable=False),
        sa.Column("owner", sa.String(300)),
        sa.Column("epoch", sa.Integer()),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_offers_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_offers")),
        sa.UniqueConstraint("job_id", name=op.f("uq_offers_job_id")),
        sa.UniqueConstraint("digest", name=op.f("uq_offers_digest")),
        sa.UniqueConstraint("worker", name=op.f("uq_offers_worker")),
    )


def downgrade() -> None:
    op.drop_table("offers")
    with replaced(v0010.views, v0010.views):
        op.drop_column("jobs", "unserved_since")
