"""Who may use the service."""

from datetime import datetime

from sqlalchemy import CheckConstraint, String
from sqlalchemy.orm import Mapped, mapped_column

from tilewise.schema.base import Scope
from tilewise.service.db.base import Base, now


class Token(Base):
    """A token that a client shows; the token itself is nowhere, its digest finds it.

    Attributes:
        name: whose it is, or what for.
        digest: SHA-256 of the token, hex.
        scope: each includes those before it: `read`, `submit`, `admin`.
        expires_at, revoked_at: after which it is worth nothing; None for never.
        used_at: when it was last shown, to the minute or so.
    """

    __tablename__ = "tokens"
    __table_args__ = (CheckConstraint("scope IN ('read', 'submit', 'admin')", name="scope"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    scope: Mapped[Scope] = mapped_column(String(8))
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]
