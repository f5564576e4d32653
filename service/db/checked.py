"""Sessions on a database of the right schema, whoever has migrated it meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from tilewise.service.db import schema, session
from tilewise.service.db.session import Sessions


@contextmanager
def reading(sessions: Sessions) -> Iterator[Session]:
    """A session that reads.

    Raises:
        DatabaseError: also when somebody else has migrated the database.
    """
    with session.reading(sessions) as opened:
        schema.check_session(opened)
        yield opened


@contextmanager
def writing(sessions: Sessions) -> Iterator[Session]:
    """A transaction, which commits at its end.

    Raises:
        DatabaseError: as `reading`, and when the database is read-only.
    """
    with session.writing(sessions) as opened:
        schema.check_session(opened)
        yield opened
