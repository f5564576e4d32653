"""Create, find, list and revoke tokens; the database stores digests only.

A token is 256 random bits, so that a plain SHA-256 of it tells nobody anything; the slow digests
that passwords need would cost each request what they are meant to cost a guesser.
"""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.schema.base import Scope
from tilewise.service.db.base import is_sound, now
from tilewise.service.db.models import Token
from tilewise.service.db.rows import inserted
from tilewise.service.errors import ConflictError, NotFoundError

PREFIX = "tw_"
RANDOM_BYTES = 32
TOUCHED_EVERY = timedelta(minutes=1)


def digest(token: str) -> str:
    """Return the SHA-256 of a token, 64 hex digits."""
    return hashlib.sha256(token.encode()).hexdigest()


def create(session: Session, name: str, scope: Scope, expires_at: datetime | None) -> str:
    """Create a token and return it; it cannot be shown again.

    `expires_at` None is never. Raises ConflictError if the name exists, revoked or not.
    """
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    made = Token(name=name, digest=digest(token), scope=scope, expires_at=expires_at)
    if not inserted(session, made):
        raise ConflictError(
            f"there is a token {name!r} already; revoke it, and give the new one another name"
        )
    return token


def find(session: Session, token: str) -> Token | None:
    """Return the row of a valid token; None for any other."""
    row = session.scalar(select(Token).where(Token.digest == digest(token)))
    if row is None or not is_sound(row) or row.revoked_at is not None:
        return None
    return None if row.expires_at is not None and row.expires_at <= now() else row


def touch(session: Session, token_id: int) -> None:
    """Record the use of a token, to the minute."""
    row = session.get(Token, token_id)
    if row is not None and (row.used_at is None or row.used_at < now() - TOUCHED_EVERY):
        row.used_at = now()


def every(session: Session) -> Sequence[Token]:
    """Return all tokens by name, including expired and revoked ones."""
    return [row for row in session.scalars(select(Token).order_by(Token.name)) if is_sound(row)]


def revoke(session: Session, name: str) -> Token:
    """Revoke a token, which may be repeated; raise NotFoundError if there is none of this name."""
    row = session.scalar(select(Token).where(Token.name == name))
    if row is None:
        raise NotFoundError(f"there is no token {name!r}")
    row.revoked_at = row.revoked_at or now()
    return row
