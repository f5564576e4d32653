"""Views out of the way of a migration, and back when it is done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op

from tilewise.migrations.views.spelling import Spelling, of

Views = Callable[[Spelling], dict[str, str]]
"""Gives the SELECT of each view, by name, in the spelling of a database."""

GRANTS = """
SELECT c.relname, COALESCE(quote_ident(g.rolname), 'PUBLIC')
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a LEFT JOIN pg_roles g ON g.oid = a.grantee
WHERE c.relkind = 'v' AND c.relnamespace = CAST(current_schema() AS regnamespace)
  AND a.privilege_type = 'SELECT' AND a.grantee <> c.relowner
"""


@contextmanager
def replaced(old: Views | None, new: Views | None) -> Iterator[None]:
    """Drop the views that there are, and make others at the end; who may read one still may.

    SQLite refuses to rename a table that a view reads, as every batch does at its end, and
    PostgreSQL to change the type of a column that a view reads.

    Args:
        old: what the revision before has; None for no views.
        new: what this one has; the same for one that changes tables alone.
    """
    spelling = of(op.get_context().dialect.name)
    grants = granted()
    for name in reversed(old(spelling) if old else {}):
        op.execute(sa.DDL(f"DROP VIEW {name}"))
    yield
    made = new(spelling) if new else {}
    for name, select in made.items():
        text = f"CREATE VIEW {name} AS\n{select}"
        op.execute(sa.DDL(text.replace("%", "%%")))
    for name, role in grants:
        if name in made:
            op.execute(sa.DDL(f"GRANT SELECT ON {name} TO {role}"))


def granted() -> list[tuple[str, str]]:
    """Each view that a role may read, with the role, quoted; none on SQLite, nor in print."""
    migration = op.get_context()
    if migration.as_sql or migration.dialect.name != "postgresql":
        return []
    return [(view, role) for view, role in op.get_bind().exec_driver_sql(GRANTS)]
