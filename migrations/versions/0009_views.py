"""Views for dashboards; the table of proofs makes room for the view, and jobs know their machine.

The view has the name `proofs`, so the table becomes `script_proofs`, with all that it holds.
"""

import sqlalchemy as sa
from alembic import op

from tilewise.migrations.views import v0009
from tilewise.migrations.views.replacing import replaced

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

FAILED = sa.text("state = 'failed'")
COLUMNS = (
    "id, schedule_id, script_id, ok, applied, executed, max_error, tolerance, gflops, low, high, "
    "time_us, mlir, failure, message, created_at, digest"
)
ENDED = ["job_id", "state", "gflops", "time_us"]


def upgrade() -> None:
    with replaced(None, v0009.views):
        move_proofs("proofs", "script_proofs")
        op.add_column("jobs", sa.Column("host", sa.String(255), nullable=True))
        op.execute(HOSTS_OF_SCHEDULES)
        op.execute(HOST_OF_ALL)
        index_ended([*ENDED, "number"])
        op.create_index("ix_trials_created_at_job_id", "trials", ["created_at", "job_id"])
        op.create_index(
            "ix_trials_failed", "trials", ["created_at"],
            sqlite_where=FAILED, postgresql_where=FAILED,
        )  # fmt: skip


def downgrade() -> None:
    with replaced(v0009.views, None):
        op.drop_index("ix_trials_failed", table_name="trials")
        op.drop_index("ix_trials_created_at_job_id", table_name="trials")
        index_ended(ENDED)
        with op.batch_alter_table("jobs") as jobs:
            jobs.drop_column("host")
        move_proofs("script_proofs", "proofs")


# The machine of a job is known where its schedule is stored, and where there was only one.
HOSTS_OF_SCHEDULES = """
UPDATE jobs SET host = (
  SELECT m.host FROM schedules s JOIN machines m ON m.id = s.machine_id
  WHERE s.problem_id = jobs.problem_id AND s.target = jobs.target
    AND s.toolchain_id = jobs.toolchain_id AND s.cache = jobs.cache AND s.job_id = jobs.id)
"""
HOST_OF_ALL = """
UPDATE jobs SET host = (SELECT min(host) FROM machines)
WHERE host IS NULL AND started_at IS NOT NULL AND (SELECT count(*) FROM machines) = 1
"""


def index_ended(columns: list[str]) -> None:
    op.drop_index("ix_trials_ended", table_name="trials")
    op.create_index("ix_trials_ended", "trials", columns)


def move_proofs(old: str, new: str) -> None:
    """Move the table of proofs, whose constraints and indexes have its name in theirs."""
    op.create_table(
        new,
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("schedule_id", sa.Integer(), nullable=False),
        sa.Column("script_id", sa.Integer()),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.Column("executed", sa.Boolean(), nullable=False),
        *(sa.Column(name, sa.Double()) for name in ("max_error", "tolerance")),
        *(sa.Column(name, sa.Double()) for name in ("gflops", "low", "high", "time_us")),
        sa.Column("mlir", sa.String(100), nullable=False),
        sa.Column("failure", sa.String(64)),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("digest", sa.String(64)),
        sa.CheckConstraint(
            "NOT ok OR (applied AND executed AND script_id IS NOT NULL)",
            name=op.f(f"ck_{new}_ok_means_executed"),
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"],
            name=op.f(f"fk_{new}_schedule_id_schedules"), ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["script_id"], ["scripts.id"],
            name=op.f(f"fk_{new}_script_id_scripts"), ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{new}")),
        sa.UniqueConstraint("script_id", name=op.f(f"uq_{new}_script_id")),
    )  # fmt: skip
    copy = f"INSERT INTO {new} ({COLUMNS}) SELECT {COLUMNS} FROM {old}"
    is_server = op.get_context().dialect.name == "postgresql"
    # A row of SQLite may break a check by an edit; it is refused where it is read, not here.
    checks = "PRAGMA ignore_check_constraints = {}"
    for statement in [copy] if is_server else [checks.format("ON"), copy, checks.format("OFF")]:
        op.execute(statement)
    op.drop_table(old)
    op.create_index(f"ix_{new}_schedule_id", new, ["schedule_id"])
    if is_server:
        # The numbers go on after the last one, or from 1.
        op.execute(f"SELECT setval('{new}_id_seq', COALESCE(max(id), 0) + 1, false) FROM {new}")
