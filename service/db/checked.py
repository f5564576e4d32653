"""Sessions that check the schema of the database."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from tilewise.service.db import schema, session
from tilewise.service.db.session import Sessions


@contextmanager
def reading(sessions: Sessions) -> Iterator[Session]:
    """Open a session for reading; raise DatabaseError also after a migration by another process."""
    with session.reading(sessions) as opened:
        schema.check_session(opened)
        yield opened


@contextmanager
def writing(sessions: Sessions) -> Iterator[Session]:
    """Open a transaction; raise DatabaseError as `reading`, and for a read-only database."""
    with session.writing(sessions) as opened:
        schema.check_session(opened)
        yield opened
