"""Where things were timed, and by what: machines, workers, toolchains; and who may ask."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tilewise.schema.base import Scope
from tilewise.service.db.base import Base, now


class Machine(Base):
    """A machine that has timed something, or has workers that could.

    Attributes:
        features: what of the processor's instruction sets a kernel may use, as LLVM names them;
            None in a row older than that.
        peaks: multiply-add peak of one thread in GFLOP/s by dtype, as measured; None before.
        bandwidth_gbs: bytes that one thread reads from memory, in GB/s, as measured; None before.
        peaks_at: when they were measured.
    """

    __tablename__ = "machines"

    id: Mapped[int] = mapped_column(primary_key=True)
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

    id: Mapped[int] = mapped_column(primary_key=True)
    identity: Mapped[str] = mapped_column(String(255), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Worker(Base):
    """A process that takes jobs on a machine, for as long as it shows itself.

    Attributes:
        owner: the process, from `tilewise.service.host.process_identity`.
        targets: canonical targets that it serves.
        toolchain: identity of its compilers; it takes no jobs of another.
        capacity: most jobs at once.
    """

    __tablename__ = "workers"

    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(String(300), unique=True)
    machine_id: Mapped[int] = mapped_column(ForeignKey("machines.id"))
    targets: Mapped[list[Any]]
    toolchain: Mapped[str] = mapped_column(String(255))
    capacity: Mapped[int]
    started_at: Mapped[datetime] = mapped_column(default=now)
    seen_at: Mapped[datetime] = mapped_column(default=now)

    machine: Mapped[Machine] = relationship(lazy="joined", innerjoin=True)


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
