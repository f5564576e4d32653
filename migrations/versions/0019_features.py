"""Targets name the features of their machine that differ from what its processor's name implies.

A result gets the features of the machine that timed it, as the database has them; where it has
none, `features=unknown`, which no request equals. A job that never ran has no result: it keeps its
target, unless all machines of its processor's name have the same features.

Reports of suites keep the target in their text, which their SHA-256 names. Going down, targets lose
their features again. Of two rows that only those tell apart, one keeps them, so that no row is
lost: older code does not find it, and going up again leaves it as it is. Columns stay as wide.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import context, op

from tilewise.migrations import digests
from tilewise.migrations.targets import ending
from tilewise.migrations.views import v0018
from tilewise.migrations.views.replacing import replaced

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

WIDTH, ROWS_AT_ONCE = 500, 500
UNKNOWN = ",features=unknown"
ACTIVE = ("queued", "running")
PLAIN = re.compile(r"(?:cpu|iree):([^,]+),threads=[0-9]+")
# What no two rows share besides the target; of jobs and plans, those that have not ended.
UNIQUE = {
    "schedules": ("problem_id", "toolchain_id", "cache"),
    "jobs": ("problem_id", "toolchain_id", "cache"),
    "plans": ("sha256", "name", "toolchain_id", "trials", "seed", "cache", "layouts", "accuracy"),
}
TABLES = ("past_schedules", *UNIQUE, "networks", "suite_reports")

Changes = Mapping[int, str]
"""New targets, by the numbers of rows."""


def upgrade() -> None:
    with replaced(v0018.views, v0018.views):
        for table in TABLES:
            with op.batch_alter_table(table) as changed:
                changed.alter_column(
                    "target", type_=sa.String(WIDTH), existing_type=sa.String(100),
                    existing_nullable=False,
                )  # fmt: skip
    if not context.is_offline_mode():
        naming = Naming(op.get_bind())
        for table, changes in naming.all():
            rename(op.get_bind(), table, changes)


def downgrade() -> None:
    if not context.is_offline_mode():
        for table in TABLES:
            query = sa.select(*columns(table, "id", "target")).order_by(sa.column("id"))
            shorter = {
                row: (text, str(text).partition(",features=")[0])
                for row, text in op.get_bind().execute(query)
            }
            changes = {row: new for row, (text, new) in shorter.items() if text != new}
            rename(op.get_bind(), table, changes)


class Naming:
    """Finds the features that the targets of old rows are to name.

    Args:
        connection: of the database.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self.machines: dict[Any, tuple[str, str | None]] = {}
        self.endings: dict[str, set[str | None]] = defaultdict(set)
        wanted = columns("machines", "id", "host", "cpu", "features")
        for number, host, cpu, features in connection.execute(sa.select(*wanted)):
            found = ending_of(cpu, features)
            self.machines[number] = self.machines[host] = cpu, found
            self.endings[cpu].add(found)
        self.by_job: dict[int, str] = {}
        self.by_work: dict[tuple[str, int], set[str]] = defaultdict(set)

    def all(self) -> Iterator[tuple[str, Changes]]:
        """The new targets of each table, of results first, which say those of the others."""
        for table in ("past_schedules", "schedules"):
            yield table, self.found(table, self.of_result, "machine_id", "job_id")
        yield "jobs", self.found("jobs", self.of_job, "id", "host", "state")
        yield "plans", self.found("plans", self.of_plan, "state")
        for table in ("networks", "suite_reports"):
            yield table, self.found(table, self.of_work)

    def found(self, table: str, name: Callable[..., str], *others: str) -> Changes:
        """The rows of a table whose target changes."""
        changes = {}
        query = sa.select(*columns(table, "id", "target", "toolchain_id", *others))
        for row in self.connection.execute(query.order_by(sa.column("id"))).mappings():
            target = row["target"]
            if isinstance(target, str) and PLAIN.fullmatch(target):
                new = name(row)
                if new != target:
                    changes[row["id"]] = new
        return changes

    def of_result(self, row: Mapping[str, Any]) -> str:
        new = self.timed_on(row["target"], row["machine_id"])
        self.by_job[row["job_id"]] = new
        self.note(row, new)
        return new

    def of_job(self, row: Mapping[str, Any]) -> str:
        new = self.by_job.get(row["id"]) or self.timed_on(row["target"], row["host"])
        if new.endswith(UNKNOWN) and row["state"] in ACTIVE:
            new = self.of_all_machines(row["target"]) or row["target"]
        self.note(row, new)
        return new

    def of_plan(self, row: Mapping[str, Any]) -> str:
        new = self.of_work(row)
        return row["target"] if new.endswith(UNKNOWN) and row["state"] in ACTIVE else new

    def of_work(self, row: Mapping[str, Any]) -> str:
        """The one target that jobs and results of a target and a toolchain have now."""
        found = self.by_work[row["target"], row["toolchain_id"]]
        if len(found) == 1:
            return next(iter(found))
        return self.of_all_machines(row["target"]) or row["target"] + UNKNOWN

    def note(self, row: Mapping[str, Any], new: str) -> None:
        if not new.endswith(UNKNOWN):
            self.by_work[row["target"], row["toolchain_id"]].add(new)

    def timed_on(self, target: str, machine: int | str | None) -> str:
        """A target on a machine by its number or host, which may be another model by now."""
        cpu, found = self.machines.get(machine, ("", None))
        return target + (UNKNOWN if cpu != model_of(target) or found is None else found)

    def of_all_machines(self, target: str) -> str | None:
        """A target with the features that all machines of its processor's name share, if any."""
        found = self.endings.get(model_of(target), set())
        (same,) = found if len(found) == 1 else (None,)
        return None if same is None else target + same


def ending_of(cpu: str, features: str | None) -> str | None:
    try:
        found = json.loads(features or "null")
    except ValueError:
        return None
    return ending(cpu, map(str, found)) if isinstance(found, list) and found else None


def model_of(target: str) -> str:
    found = PLAIN.fullmatch(target)
    return found[1] if found else ""


def rename(connection: sa.Connection, table: str, changes: Changes) -> None:
    """Write new targets and their digests, but of no row whose place another one has."""
    changes = without_taken(connection, table, changes)
    sealed = seal(connection, table, changes)
    if changes:
        named = sa.table(table, sa.column("id"), sa.column("target"))
        update = sa.update(named).where(named.c.id == sa.bindparam("row"))
        rows = [{"row": row, "new": new} for row, new in changes.items()]
        connection.execute(update.values(target=sa.bindparam("new")), rows)
    for of, values in sealed.items():
        named = sa.table(of, *map(sa.column, ("id", "digest")), sa.column("plan", sa.JSON()))
        for row, found in values.items():
            connection.execute(sa.update(named).where(named.c.id == row).values(**found))


def without_taken(connection: sa.Connection, table: str, changes: Changes) -> Changes:
    if table not in UNIQUE or not changes:
        return changes
    names = UNIQUE[table]
    query = sa.select(*columns(table, "id", "target", *names)).order_by(sa.column("id"))
    if table != "schedules":
        query = query.where(sa.column("state").in_(ACTIVE))
    places = {row[0]: (row[1], *row[2:]) for row in connection.execute(query)}
    taken, kept = set(places.values()), {}
    for row, new in changes.items():
        place = places.get(row)
        wanted = None if place is None else (new, *place[1:])
        if wanted is None or wanted not in taken:
            kept[row] = new
            taken = taken | {wanted} if wanted else taken
    return kept


def seal(
    connection: sa.Connection, table: str, changes: Changes
) -> dict[str, dict[int, dict[str, Any]]]:
    """The columns that change with the targets, of rows whose digest holds, by table and number."""
    found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    numbers = list(changes)
    for start in range(0, len(numbers), ROWS_AT_ONCE):
        some = numbers[start : start + ROWS_AT_ONCE]
        if table in ("schedules", "past_schedules"):
            query = digests.schedules_query(table, "digest")
            query = query.where(query.selected_columns["id"].in_(some))
            for row in connection.execute(query).mappings():
                add(found[table], row["id"], digests.schedule_digest, row, changes[row["id"]])
        if table == "schedules":
            query = digests.proofs_query("script_proofs", "digest", "schedule_id")
            query = query.where(query.selected_columns["schedule_id"].in_(some))
            for row in connection.execute(query).mappings():
                new = changes[row["schedule_id"]]
                add(found["script_proofs"], row["id"], digests.proof_digest, row, new)
        if table == "plans":
            found[table] |= plans(connection, some, changes)
    return found


def add(
    found: dict[int, dict[str, Any]],
    number: int,
    digest: Callable[[digests.Row], str | None],
    row: sa.RowMapping,
    new: str,
) -> None:
    if row["digest"] is not None and digest(row) == row["digest"]:
        found[number] = {"digest": digest({**row, "target": new})}


def plans(
    connection: sa.Connection, numbers: list[int], changes: Changes
) -> dict[int, dict[str, Any]]:
    """Plans name their target once more, in what was planned."""
    names = ("id", "toolchain_id", "sha256", "target", "script", "digest", "plan")
    number, of, *others = columns("plans", *names)
    toolchain, identity = columns("toolchains", "id", "identity")
    query = sa.select(number, *others, identity).where(of == toolchain, number.in_(numbers))
    found = {}
    for row in connection.execute(query):
        try:
            plan = json.loads(row.plan or "null")
        except ValueError:
            continue
        if isinstance(plan, dict) and row.digest == plan_digest(row, row.target, plan):
            new = changes[row.id]
            plan["target"] = new
            found[row.id] = {"plan": plan, "digest": plan_digest(row, new, plan)}
    return found


def plan_digest(row: Any, target: str, plan: Any) -> str:
    told = [row.sha256, target, row.identity, plan, row.script]
    return digests.sha256(json.dumps(told, sort_keys=True))


def columns(table: str, *names: str) -> list[Any]:
    """Columns; JSON as its text, for an edit may have left something else in it."""
    of = sa.table(table, *map(sa.column, names))
    return [
        sa.cast(of.c[name], sa.Text).label(name) if name in ("features", "plan") else of.c[name]
        for name in names
    ]
