"""Whole models that somebody asked for: their problems, each of which is a job of its own."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tilewise.kernels.target.model import LONGEST_TARGET
from tilewise.search.records import CacheMode
from tilewise.service.db.base import Base, now
from tilewise.service.db.models.places import Toolchain


class Network(Base):
    """A model's module, read once; how far it is stands in the jobs and schedules of its problems.

    Attributes:
        sha256: of the module, hex; problems and reasons are all else that is stored of it.
        target, trials, cache: of the jobs.
        problems: objects of `problem`, `count` and `where`, in the order of their first ops.
        skipped: objects of `op`, `reason` and `where`.
        token_id: the token that asked; None where no token was asked for.
    """

    __tablename__ = "networks"

    id: Mapped[int] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64))
    target: Mapped[str] = mapped_column(String(LONGEST_TARGET))
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchains.id"))
    trials: Mapped[int]
    cache: Mapped[CacheMode] = mapped_column(String(8))
    problems: Mapped[list[Any]]
    skipped: Mapped[list[Any]]
    token_id: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)

    toolchain: Mapped[Toolchain] = relationship(lazy="joined", innerjoin=True)
