"""The statements that a database is asked, and how SQLite would answer them."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, event

from tilewise.service.db import make_engine


@contextmanager
def noted() -> Iterator[list[tuple[str, tuple]]]:
    """Every SELECT of this process, with its values, as long as the block lasts."""
    found = []

    def note(_connection, _cursor, statement, values, *_rest):
        if statement.startswith("SELECT"):
            found.append((statement, values))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def plan(url: str, statement: str, values: tuple) -> list[str]:
    """The steps of a statement, as `EXPLAIN QUERY PLAN` names them."""
    engine = make_engine(url)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
    engine.dispose()
    return [row[3] for row in rows]
