"""Tables of machines, workers, toolchains and tokens."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tilewise.schema.base import Scope
from tilewise.service.db.base import Base, now


class Machine(Base):
    """A machine that has timed something or has workers.

    `features` are LLVM's, None in older rows. `peaks` are GFLOP/s of one thread by dtype and
    `bandwidth_gbs` GB/s of one thread, as measured at `peaks_at`.
    """

    __tablename__ = "machines"

    host: Mapped[str] = mapped_column(String(255), unique=True)
    cpu: Mapped[str] = mapped_column(String(64))
    cores: Mapped[int]
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    caches: Mapped[dict[str, Any]]
    features: Mapped[list[Any] | None]
    peaks: Mapped[dict[str, Any] | None]
    bandwidth_gbs: Mapped[float | None]
    peaks_at: Mapped[datetime | None]
    seen_at: Mapped[datetime] = mapped_column(default=now)


class Toolchain(Base):
    """The compilers and the generator that a result belongs to, as `system.toolchain` has it."""

    __tablename__ = "toolchains"

    identity: Mapped[str] = mapped_column(String(255), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Worker(Base):
    """A live process that takes at most `capacity` jobs on a machine."""

    __tablename__ = "workers"

    owner: Mapped[str] = mapped_column(String(300), unique=True)
    machine_id: Mapped[int] = mapped_column(ForeignKey("machines.id"))
    targets: Mapped[list[Any]]
    toolchain: Mapped[str] = mapped_column(String(255))
    capacity: Mapped[int]
    started_at: Mapped[datetime] = mapped_column(default=now)
    seen_at: Mapped[datetime] = mapped_column(default=now)

    machine: Mapped[Machine] = relationship(lazy="joined", innerjoin=True)


class Token(Base):
    """A client's token; only its digest is stored.

    Each scope includes those before it: `read`, `submit`, `admin`. `used_at` is accurate to a
    minute.
    """

    __tablename__ = "tokens"
    __table_args__ = (CheckConstraint("scope IN ('read', 'submit', 'admin')", name="scope"),)

    name: Mapped[str] = mapped_column(String(100), unique=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    scope: Mapped[Scope] = mapped_column(String(8))
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]
