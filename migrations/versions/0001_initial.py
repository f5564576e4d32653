"""The tables of the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_machines()
    create_problems()
    create_toolchains()
    create_jobs()
    create_schedules()
    create_trials()
    create_scripts()
    create_proofs()


def downgrade() -> None:
    op.drop_table("proofs")
    op.drop_table("scripts")
    op.drop_table("trials")
    op.drop_table("schedules")
    op.drop_table("jobs")
    op.drop_table("toolchains")
    op.drop_table("problems")
    op.drop_table("machines")


def create_machines() -> None:
    op.create_table(
        "machines",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("cpu", sa.String(length=64), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("caches", sa.JSON(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_machines")),
        sa.UniqueConstraint("host", name=op.f("uq_machines_host")),
    )


def create_problems() -> None:
    op.create_table(
        "problems",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("canonical", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_problems")),
        sa.UniqueConstraint("key", name=op.f("uq_problems_key")),
    )


def create_toolchains() -> None:
    op.create_table(
        "toolchains",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("identity", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_toolchains")),
        sa.UniqueConstraint("identity", name=op.f("uq_toolchains_identity")),
    )


def create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("target", sa.String(length=100), nullable=False),
        sa.Column("toolchain_id", sa.Integer(), nullable=False),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("sampler", sa.String(length=16), nullable=False),
        sa.Column("peers", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=300), nullable=True),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("elapsed_s", sa.Double(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state <> 'running' OR owner IS NOT NULL", name=op.f("ck_jobs_running_has_owner")
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'done', 'failed', 'cancelled')",
            name=op.f("ck_jobs_state"),
        ),
        sa.ForeignKeyConstraint(
            ["problem_id"], ["problems.id"], name=op.f("fk_jobs_problem_id_problems")
        ),
        sa.ForeignKeyConstraint(
            ["toolchain_id"], ["toolchains.id"], name=op.f("fk_jobs_toolchain_id_toolchains")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_state", "jobs", ["state", "target"], unique=False)
    op.create_index(
        "uq_jobs_active",
        "jobs",
        ["problem_id", "target", "toolchain_id"],
        unique=True,
        sqlite_where=sa.text("state IN ('queued', 'running')"),
        postgresql_where=sa.text("state IN ('queued', 'running')"),
    )


def create_schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("target", sa.String(length=100), nullable=False),
        sa.Column("toolchain_id", sa.Integer(), nullable=False),
        sa.Column("machine_id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=16), nullable=False),
        sa.Column("steps", sa.JSON(), nullable=False),
        sa.Column("gflops", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.Column("time_us", sa.Double(), nullable=False),
        sa.Column("peak_gflops", sa.Double(), nullable=False),
        sa.Column("peers", sa.JSON(), nullable=True),
        sa.Column("budget", sa.Integer(), nullable=False),
        sa.Column("elapsed_s", sa.Double(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_schedules_job_id_jobs")),
        sa.ForeignKeyConstraint(
            ["machine_id"], ["machines.id"], name=op.f("fk_schedules_machine_id_machines")
        ),
        sa.ForeignKeyConstraint(
            ["problem_id"], ["problems.id"], name=op.f("fk_schedules_problem_id_problems")
        ),
        sa.ForeignKeyConstraint(
            ["toolchain_id"], ["toolchains.id"], name=op.f("fk_schedules_toolchain_id_toolchains")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint(
            "problem_id",
            "target",
            "toolchain_id",
            name=op.f("uq_schedules_problem_id_target_toolchain_id"),
        ),
    )


def create_trials() -> None:
    op.create_table(
        "trials",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=16), nullable=False),
        sa.Column("steps", sa.JSON(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("failure", sa.String(length=16), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("gflops", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("time_us", sa.Double(), nullable=True),
        sa.Column("samples", sa.LargeBinary(), nullable=False),
        sa.Column("rejected", sa.Integer(), nullable=False),
        sa.Column("compile_s", sa.Double(), nullable=False),
        sa.Column("max_error", sa.Double(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("state IN ('timed', 'pruned', 'failed')", name=op.f("ck_trials_state")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_trials_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_trials_job_id_number")),
    )


def create_scripts() -> None:
    op.create_table(
        "scripts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("schedule_id", sa.Integer(), nullable=False),
        sa.Column("flavor", sa.String(length=16), nullable=False),
        sa.Column("hash", sa.String(length=16), nullable=False),
        sa.Column("steps", sa.JSON(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["schedules.id"],
            name=op.f("fk_scripts_schedule_id_schedules"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scripts")),
    )
    op.create_index("ix_scripts_schedule_id", "scripts", ["schedule_id"], unique=False)


def create_proofs() -> None:
    op.create_table(
        "proofs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("schedule_id", sa.Integer(), nullable=False),
        sa.Column("script_id", sa.Integer(), nullable=True),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.Column("executed", sa.Boolean(), nullable=False),
        sa.Column("max_error", sa.Double(), nullable=True),
        sa.Column("tolerance", sa.Double(), nullable=True),
        sa.Column("gflops", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("time_us", sa.Double(), nullable=True),
        sa.Column("mlir", sa.String(length=100), nullable=False),
        sa.Column("failure", sa.String(length=64), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "NOT ok OR (applied AND executed AND script_id IS NOT NULL)",
            name=op.f("ck_proofs_ok_means_executed"),
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["schedules.id"],
            name=op.f("fk_proofs_schedule_id_schedules"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["script_id"],
            ["scripts.id"],
            name=op.f("fk_proofs_script_id_scripts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proofs")),
        sa.UniqueConstraint("script_id", name=op.f("uq_proofs_script_id")),
    )
    op.create_index("ix_proofs_schedule_id", "proofs", ["schedule_id"], unique=False)
