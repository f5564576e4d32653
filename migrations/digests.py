"""Digests of what schedules and proofs claim, as they have been since revision 0006.

A copy of `tilewise.service.results.integrity`'s. It must not follow changes there: a revision that
changes the digest brings a copy of its own, and computes all of them anew.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

Row = sa.RowMapping | dict[str, Any]
Json = dict[str, Any]

SCHEDULE = ("job_id", "hash", "steps", "gflops", "low", "high", "time_us", "peak_gflops",
            "scratch_bytes", "peers", "measured", "budget", "elapsed_s", "complete")  # fmt: skip
PROOF = ("ok", "applied", "executed", "max_error", "tolerance", "gflops", "low", "high",
         "time_us", "mlir", "failure", "message")  # fmt: skip
SCRIPT = ("flavor", "hash", "steps", "sha256")
FLOATS = {"gflops", "low", "high", "time_us", "peak_gflops", "elapsed_s", "max_error", "tolerance"}
JSON = {"steps", "scratch_bytes", "peers", "measured"}
WORK = ("key", "canonical", "target", "toolchain", "cache")

compact = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def schedules_query(name: str = "schedules", *others: str) -> sa.Select[Any]:
    """Results with their work and some other columns, of the table of stored or of past ones."""
    schedules, problems, toolchains = (
        table(name, "id", "problem_id", "target", "toolchain_id", "cache", *SCHEDULE, *others),
        table("problems", "id", "key", "canonical"),
        table("toolchains", "id", "identity"),
    )
    return sa.select(
        schedules.c.id,
        *work(schedules, problems, toolchains),
        *(raw(schedules, n) for n in (*SCHEDULE, *others)),
    ).select_from(of_work(schedules, problems, toolchains))


def proofs_query(name: str = "proofs", *others: str) -> sa.Select[Any]:
    """Proofs, each with its work and its script; the script's columns are called `script_...`."""
    schedules, problems, toolchains = (
        table("schedules", "id", "problem_id", "target", "toolchain_id", "cache"),
        table("problems", "id", "key", "canonical"),
        table("toolchains", "id", "identity"),
    )
    proofs = table(name, "id", "schedule_id", "script_id", *PROOF, *others)
    scripts = table("scripts", "id", "text", *SCRIPT)
    return sa.select(
        proofs.c.id,
        *work(schedules, problems, toolchains),
        *(raw(proofs, name) for name in (*PROOF, *others)),
        scripts.c.id.label("script"),
        scripts.c.text.label("script_text"),
        *(raw(scripts, name).label(f"script_{name}") for name in SCRIPT),
    ).select_from(
        of_work(schedules, problems, toolchains)
        .join(proofs, proofs.c.schedule_id == schedules.c.id)
        .outerjoin(scripts, scripts.c.id == proofs.c.script_id)
    )


def table(name: str, *columns: str) -> sa.TableClause:
    """Return a table with some columns."""
    booleans = {"ok", "applied", "executed", "complete"}
    return sa.table(name, *(sa.column(c, sa.Boolean() if c in booleans else None) for c in columns))


def raw(of: sa.TableClause, name: str) -> sa.ColumnElement[Any]:
    """A column; JSON as its text, for an edit may have left something else in it."""
    return sa.cast(of.c[name], sa.Text).label(name) if name in JSON else of.c[name]


def work(*tables: sa.TableClause) -> list[sa.ColumnElement[Any]]:
    """Return the columns of the work that a row is of."""
    schedules, problems, toolchains = (of.c for of in tables)
    identity = toolchains.identity.label("toolchain")
    return [problems.key, problems.canonical, schedules.target, identity, schedules.cache]


def of_work(*tables: sa.TableClause) -> sa.Join:
    """Return a join of results with their problems and toolchains."""
    schedules, problems, toolchains = tables
    return schedules.join(problems, problems.c.id == schedules.c.problem_id).join(
        toolchains, toolchains.c.id == schedules.c.toolchain_id
    )


def schedule_digest(row: Row) -> str | None:
    """The digest of a schedule whose problem and steps have the names that they are stored by."""
    try:
        values = plain(row, SCHEDULE)
        if not (is_work(row) and is_named(row["hash"], values["steps"])):
            return None
        return digest("schedule", row, values)
    except (TypeError, ValueError):
        return None


def proof_digest(row: Row) -> str | None:
    """The digest of a proof whose script is the one it was, and which proves what it says."""
    try:
        script = None if row["script"] is None else plain(row, SCRIPT, "script_")
        if not (is_work(row) and is_script(row, script) and is_proven(row, script)):
            return None
        return digest("proof", row, {**plain(row, PROOF), "script": script})
    except (TypeError, ValueError):
        return None


def is_work(row: Row) -> bool:
    """Whether a problem has the key that it is stored by."""
    return bool(sha256(row["canonical"]) == row["key"])


def is_script(row: Row, script: Json | None) -> bool:
    """Whether a script has the hashes that it is stored by."""
    if script is None:
        return True
    is_named_so = script["flavor"] != "cpu" or is_named(script["hash"], script["steps"])
    return is_named_so and sha256(row["script_text"]) == script["sha256"]


def is_proven(row: Row, script: Json | None) -> bool:
    """Whether a proof that says so gave the right result; what it does not say is not asked."""
    if not row["ok"]:
        return True
    was_run = script is not None and row["applied"] and row["executed"]
    error, tolerance = row["max_error"], row["tolerance"]
    return was_run and math.isfinite(error) and error <= tolerance


def is_named(name: str, steps: object) -> bool:
    """Whether steps have the hash that names their schedule."""
    return sha256(compact(steps))[:16] == name


def digest(kind: str, row: Row, values: Json) -> str:
    """Return the digest of a row."""
    return sha256(compact([[kind, *(row[name] for name in WORK)], values]))


def plain(row: Row, names: Iterable[str], prefix: str = "") -> Json:
    """Return some values of a row as they are digested."""
    found = {}
    for name in names:
        value = row[prefix + name]
        if name in JSON:
            value = None if value is None else json.loads(value)
        elif name in FLOATS:
            value = None if value is None or math.isnan(value) else float(value) + 0.0
        found[name] = value
    return found


def sha256(text: str) -> str:
    """Return the SHA-256 of a text, hex."""
    if not isinstance(text, str):
        raise TypeError("not a text")
    return hashlib.sha256(text.encode()).hexdigest()
