"""What teams need: tokens, idempotency keys, live workers, the phase of a job, thinned samples."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JOBS = {
    "phase": sa.String(32),
    "phase_done": sa.Integer(),
    "phase_total": sa.Integer(),
    "token_id": sa.Integer(),
    "request_id": sa.String(64),
}
MACHINES = {"features": sa.JSON(), "peaks": sa.JSON(), "peaks_at": TIME}


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(8), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("revoked_at", TIME),
        sa.Column("used_at", TIME),
        sa.CheckConstraint("scope IN ('read', 'submit', 'admin')", name=op.f("ck_tokens_scope")),
        sa.UniqueConstraint("name", name="uq_tokens_name"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("owner", sa.String(300), nullable=False),
        sa.Column("machine_id", sa.Integer(), sa.ForeignKey("machines.id"), nullable=False),
        sa.Column("targets", sa.JSON(), nullable=False),
        sa.Column("toolchain", sa.String(255), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("seen_at", TIME, nullable=False),
        sa.UniqueConstraint("owner", name="uq_workers_owner"),
    )
    with op.batch_alter_table("jobs") as jobs:
        for name, kind in JOBS.items():
            jobs.add_column(sa.Column(name, kind, nullable=True))
        jobs.create_foreign_key("fk_jobs_token_id_tokens", "tokens", ["token_id"], ["id"])
        jobs.create_index("ix_jobs_token", ["token_id", "state"])
    op.create_table(
        "idempotency_keys",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("subject", sa.String(32), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("jobs.id", ondelete="CASCADE")),
        sa.Column("created_at", TIME, nullable=False),
        sa.UniqueConstraint("subject", "key", name="uq_idempotency_keys_subject_key"),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])
    for name, kind in MACHINES.items():
        op.add_column("machines", sa.Column(name, kind, nullable=True))
    op.add_column("trials", sa.Column("samples_taken", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "samples_taken")
    for name in MACHINES:
        op.drop_column("machines", name)
    op.drop_table("idempotency_keys")
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_index("ix_jobs_token")
        jobs.drop_constraint("fk_jobs_token_id_tokens", type_="foreignkey")
        for name in JOBS:
            jobs.drop_column(name)
    op.drop_table("workers")
    op.drop_table("tokens")
