"""Models and plans are jobs: one table has the request, the lease and the state of all kinds.

What is a plan's own stays in `plans`, and what is a model's in `networks`, each with its number.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

from tilewise.migrations.views import v0018, v0021
from tilewise.migrations.views.replacing import replaced

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

ACTIVE = "state IN ('queued', 'running')"
CHECKS = {
    "state": "state IN ('queued', 'running', 'done', 'failed', 'cancelled')",
    "running_has_owner": "state <> 'running' OR owner IS NOT NULL",
}
TUNED = "kind <> 'tune' OR problem_id IS NOT NULL"
WORK = (
    "SELECT p.sha256 || ' ' || p.layouts || ' ' || p.accuracy || ' ' || jobs.trials || ' ' || "
    "jobs.seed || ' ' || jobs.cache || ' ' || p.name FROM plans p WHERE p.job_id = jobs.id"
)
"""As `tilewise.service.jobs.model_jobs.Wanted.work` names it."""

SAME_PLAN = (
    *("sha256", "name", "target", "toolchain_id", "trials", "seed", "cache", "layouts"),
    "accuracy",
)
MOMENT = sa.DateTime(timezone=True)

# The columns that plans and models had of what is a job's now, each with its type and whether it
# may be null.
SHARED: dict[str, tuple[sa.types.TypeEngine[Any], bool]] = {
    "target": (sa.String(500), False),
    "toolchain_id": (sa.Integer(), False),
    "trials": (sa.Integer(), False),
    "cache": (sa.String(8), False),
    "token_id": (sa.Integer(), True),
    "created_at": (MOMENT, False),
}
OF = {
    "networks": SHARED,
    "plans": SHARED
    | {
        "seed": (sa.BigInteger(), False),
        "state": (sa.String(16), False),
        "owner": (sa.String(300), True),
        "worker": (sa.String(300), True),
        "heartbeat_at": (MOMENT, True),
        "epoch": (sa.Integer(), False),
        "crashes": (sa.Integer(), False),
        "unserved_since": (MOMENT, True),
        "phase": (sa.String(32), True),
        "error": (sa.Text(), True),
        "request_id": (sa.String(64), True),
        "started_at": (MOMENT, True),
        "finished_at": (MOMENT, True),
    },
}
# What a job has that its model or its plan does not say.
ADDED = {
    "plans": {},
    "networks": {
        "seed": "0", "state": "'done'", "epoch": "0", "crashes": "0", "finished_at": "created_at",
    },
}  # fmt: skip


def upgrade() -> None:
    with replaced(v0018.views, v0021.views):
        op.drop_index(op.f("uq_jobs_active"), "jobs")
        with op.batch_alter_table("jobs") as jobs:
            kind = sa.Column("kind", sa.String(16), nullable=False, server_default="tune")
            jobs.add_column(kind)
            jobs.add_column(sa.Column("work", sa.String(400)))
            jobs.add_column(sa.Column("worker", sa.String(300)))
            jobs.alter_column("problem_id", existing_type=sa.Integer(), nullable=True)
            jobs.create_check_constraint(op.f("ck_jobs_tune_has_problem"), TUNED)
        index_active("uq_jobs_active", "jobs", ["problem_id", "target", "toolchain_id", "cache"])
    for table in OF:
        with op.batch_alter_table(table) as batch:
            batch.add_column(sa.Column("job_id", sa.Integer()))
        make_jobs(table)
    run(
        "UPDATE idempotency_keys SET job_id = (SELECT p.job_id FROM plans p WHERE p.id = plan_id) "
        "WHERE plan_id IS NOT NULL"
    )
    with op.batch_alter_table("idempotency_keys") as keys:
        keys.drop_constraint(op.f("fk_idempotency_keys_plan_id_plans"), type_="foreignkey")
        keys.drop_column("plan_id")
    op.drop_index(op.f("uq_plans_active"), "plans")
    op.drop_index(op.f("ix_plans_state"), "plans")
    for table, columns in OF.items():
        with op.batch_alter_table(table) as batch:
            for check in CHECKS if table == "plans" else ():
                batch.drop_constraint(op.f(f"ck_{table}_{check}"), type_="check")
            for of in ("toolchain", "token"):
                batch.drop_constraint(op.f(f"fk_{table}_{of}_id_{of}s"), type_="foreignkey")
            for column in columns:
                batch.drop_column(column)
            batch.alter_column("job_id", existing_type=sa.Integer(), nullable=False)
            batch.create_unique_constraint(op.f(f"uq_{table}_job_id"), ["job_id"])
            refer(batch, table, "job", ondelete="CASCADE")
    run(f"UPDATE jobs SET work = ({WORK}) WHERE kind = 'model'")
    index_active("uq_jobs_active_work", "jobs", ["work", "target", "toolchain_id"])


def downgrade() -> None:
    op.drop_index(op.f("uq_jobs_active_work"), "jobs")
    with op.batch_alter_table("idempotency_keys") as keys:
        keys.add_column(sa.Column("plan_id", sa.Integer()))
    of_plan = "SELECT p.{} FROM plans p WHERE p.job_id = idempotency_keys.job_id"
    run(f"UPDATE idempotency_keys SET plan_id = ({of_plan.format('id')})")
    run("UPDATE idempotency_keys SET job_id = NULL WHERE plan_id IS NOT NULL")
    for table, columns in OF.items():
        with op.batch_alter_table(table) as batch:
            for name, (kind, _) in columns.items():
                batch.add_column(sa.Column(name, kind))
        of_job = f"(SELECT j.{{0}} FROM jobs j WHERE j.id = {table}.job_id)"
        run(f"UPDATE {table} SET " + ", ".join(f"{name} = {of_job.format(name)}"
                                               for name in columns))  # fmt: skip
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(op.f(f"fk_{table}_job_id_jobs"), type_="foreignkey")
            batch.drop_constraint(op.f(f"uq_{table}_job_id"), type_="unique")
            batch.drop_column("job_id")
            for name, (kind, is_nullable) in columns.items():
                batch.alter_column(name, existing_type=kind, nullable=is_nullable)
            for of in ("toolchain", "token"):
                refer(batch, table, of)
            for check, condition in CHECKS.items() if table == "plans" else ():
                batch.create_check_constraint(op.f(f"ck_{table}_{check}"), condition)
    op.create_index(op.f("ix_plans_state"), "plans", ["state", "target"])
    index_active("uq_plans_active", "plans", list(SAME_PLAN))
    with op.batch_alter_table("idempotency_keys") as keys:
        refer(keys, "idempotency_keys", "plan", ondelete="CASCADE")
    run("DELETE FROM jobs WHERE kind = 'model'")
    with replaced(v0021.views, v0018.views):
        op.drop_index(op.f("uq_jobs_active"), "jobs")
        with op.batch_alter_table("jobs") as jobs:
            jobs.drop_constraint(op.f("ck_jobs_tune_has_problem"), type_="check")
            for column in ("kind", "work", "worker"):
                jobs.drop_column(column)
            jobs.alter_column("problem_id", existing_type=sa.Integer(), nullable=False)
        index_active("uq_jobs_active", "jobs", ["problem_id", "target", "toolchain_id", "cache"])


def make_jobs(table: str) -> None:
    """Make a job of each row of a table, and have the row refer to it."""
    values = {name: name for name in OF[table]} | ADDED[table]
    values |= {
        "kind": "'model'", "sampler": "'surrogate'", "peers": "false", "spread": "1",
        "elapsed_s": "0.0", "work": f"'{table} ' || id",
    }  # fmt: skip
    run(f"INSERT INTO jobs ({', '.join(values)}) SELECT {', '.join(values.values())} FROM {table} "
        "ORDER BY id")  # fmt: skip
    run(f"UPDATE {table} SET job_id = (SELECT j.id FROM jobs j WHERE j.work = '{table} ' || "
        f"{table}.id)")  # fmt: skip


def refer(batch: BatchOperations, table: str, to: str, ondelete: str | None = None) -> None:
    name = op.f(f"fk_{table}_{to}_id_{to}s")
    batch.create_foreign_key(name, f"{to}s", [f"{to}_id"], ["id"], ondelete=ondelete)


def index_active(name: str, table: str, columns: list[str]) -> None:
    where = sa.text(ACTIVE)
    op.create_index(
        op.f(name), table, columns, unique=True, sqlite_where=where, postgresql_where=where
    )


def run(statement: str) -> None:
    op.execute(sa.text(statement))
