"""Databases of earlier schemas as files: the rows that the code of that time wrote.

A file is an object of tables, each with its columns and its rows as SQLite has them; bytes are
objects of base64. That of the newest schema is made by `--update-golden`.
"""

import base64
import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alembic import command
from sqlalchemy import JSON, Boolean, Connection, DateTime, MetaData, text

from tilewise.service.db import make_engine, schema
from tilewise.service.db.session import write_connection

FOLDER = Path(__file__).parent
REVISIONS = sorted(path.stem for path in FOLDER.glob("*.json"))

Rows = list[dict[str, Any]]


def read(revision: str) -> dict[str, Rows]:
    """The rows of each table, as SQLite has them."""

    def bytes_of(value):
        return base64.b64decode(value["base64"]) if isinstance(value, dict) else value

    found = json.loads((FOLDER / f"{revision}.json").read_text())
    return {
        name: [dict(zip(one["columns"], map(bytes_of, row), strict=True)) for row in one["rows"]]
        for name, one in found.items()
    }


def write(file: Path, revision: str) -> None:
    """Make the file of a database."""
    parts = []
    with sqlite3.connect(file) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        names = [name for (name,) in connection.execute(query) if name != schema.VERSION_TABLE]
        for name in names:
            found = connection.execute(f"SELECT * FROM {name} ORDER BY id")
            columns = json.dumps([column[0] for column in found.description])
            rows = ",\n".join(f"  {_shown(row)}" for row in found)
            parts.append(f'{json.dumps(name)}: {{"columns": {columns}, "rows": [\n{rows}\n]}}')
    connection.close()
    (FOLDER / f"{revision}.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")


def _shown(row: tuple[Any, ...]) -> str:
    def plain(value):
        return {"base64": base64.b64encode(value).decode()}

    return json.dumps(row, separators=(",", ":"), default=plain)


def migrate(url: str, step: Callable[..., None], revision: str) -> None:
    """Steps of migrations, as a developer makes them."""
    engine = make_engine(url, foreign_keys=False)
    with write_connection(engine) as connection:
        step(schema.alembic_config(connection), revision)
    engine.dispose()


def load(url: str, revision: str) -> None:
    """Make an empty database what it was with a revision."""
    migrate(url, command.upgrade, revision)
    engine = make_engine(url, foreign_keys=False)
    with write_connection(engine) as connection:
        tables = MetaData()
        tables.reflect(connection)
        rows = read(revision)
        for table in tables.sorted_tables:
            if table.name in rows:
                kinds = table.c
                connection.execute(table.insert(), [
                    {name: _value(kinds[name].type, value) for name, value in row.items()}
                    for row in rows[table.name]
                ])  # fmt: skip
                _count_on(connection, table.name)
    engine.dispose()


def _value(kind: object, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, Boolean):
        return bool(value)
    if isinstance(kind, DateTime):
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if kind.timezone else moment
    return json.loads(value) if isinstance(kind, JSON) else value


def _count_on(connection: Connection, table: str) -> None:
    """Have a server number the rows to come after those that are there."""
    if connection.dialect.name == "postgresql":
        of = f"'{table}_id_seq', (SELECT max(id) FROM {table})"
        connection.execute(text(f"SELECT setval({of})"))


def tables_of(url: str) -> dict[str, Rows]:
    """Every table's rows, whatever the schema; proofs by the name that they have since 0009."""
    engine = make_engine(url)
    found = {}
    with engine.connect() as connection:
        tables = MetaData()
        tables.reflect(connection)
        for table in tables.sorted_tables:
            if table.name != schema.VERSION_TABLE:
                rows = connection.execute(table.select().order_by(table.c.id)).mappings()
                name = "script_proofs" if table.name == "proofs" else table.name
                found[name] = [dict(row) for row in rows]
    engine.dispose()
    return found
