"""What was asked for: problems, and the searches for their schedules."""

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tilewise.kernels.target.model import LONGEST_TARGET
from tilewise.schema.base import JobState
from tilewise.search.records import LONGEST_SAMPLER, CacheMode
from tilewise.service.db.base import Base, now
from tilewise.service.db.models.places import Toolchain

ACTIVE = "state IN ('queued', 'running')"


class Problem(Base):
    """A problem, by its canonical string."""

    __tablename__ = "problems"

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    canonical: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Job(Base):
    """A search that somebody asked for, with the lease of the process that runs it.

    Attributes:
        trials, seconds, seed, sampler, peers, cache, spread: the request.
        owner: process that holds the lease (`tilewise.service.host.process_identity`), None unless
            running.
        host: machine of the last run, None before the first one.
        heartbeat_at: when the owner last showed itself.
        epoch: number of the present run; each claim counts it up, and what a run writes
            carries it, so that a run which lost its claim writes nothing.
        crashes: runs since the last trial that ended with the death of their process.
        elapsed_s: seconds of all runs up to `claimed_at`, the last write of the present one.
        complete: whether the whole budget was spent, None until the job has ended.
        phase, phase_done, phase_total: what the present run does now, and how much of it is done;
            None before the first run.
        token_id: the token that asked first; None where no token was asked for.
        request_id: of the request that asked first; the lines that its workers log carry it.
        unserved_since: since when it waits and no worker serves its target; None where one does.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(
            "state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name="state"
        ),
        CheckConstraint("state <> 'running' OR owner IS NOT NULL", name="running_has_owner"),
        # The same work is never queued twice, whoever races.
        Index(
            "uq_jobs_active",
            "problem_id",
            "target",
            "toolchain_id",
            "cache",
            unique=True,
            sqlite_where=text(ACTIVE),
            postgresql_where=text(ACTIVE),
        ),
        Index("ix_jobs_state", "state", "target"),
        Index("ix_jobs_state_id", "state", "id"),  # lists are in the order of the numbers
        # Of all jobs for a piece of work: whose trials go on, which are copies, what failed.
        Index("ix_jobs_work", "problem_id", "target", "toolchain_id", "cache"),
        Index("ix_jobs_token", "token_id", "state"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    target: Mapped[str] = mapped_column(String(LONGEST_TARGET))
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchains.id"))
    trials: Mapped[int]
    seconds: Mapped[float | None]
    seed: Mapped[int] = mapped_column(BigInteger)
    sampler: Mapped[str] = mapped_column(String(LONGEST_SAMPLER))
    peers: Mapped[bool]
    cache: Mapped[CacheMode] = mapped_column(String(8), default="hot")
    spread: Mapped[int] = mapped_column(default=1, server_default="1")
    state: Mapped[JobState] = mapped_column(String(16), default="queued")
    owner: Mapped[str | None] = mapped_column(String(300))
    host: Mapped[str | None] = mapped_column(String(255))
    claimed_at: Mapped[datetime | None]
    heartbeat_at: Mapped[datetime | None]
    epoch: Mapped[int] = mapped_column(default=0)
    crashes: Mapped[int] = mapped_column(default=0)
    elapsed_s: Mapped[float] = mapped_column(default=0.0)
    complete: Mapped[bool | None]
    error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=now)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    phase: Mapped[str | None] = mapped_column(String(32))
    phase_done: Mapped[int | None]
    phase_total: Mapped[int | None]
    token_id: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))
    request_id: Mapped[str | None] = mapped_column(String(64))
    unserved_since: Mapped[datetime | None]

    problem: Mapped[Problem] = relationship(lazy="joined", innerjoin=True)
    toolchain: Mapped[Toolchain] = relationship(lazy="joined", innerjoin=True)


class IdempotencyKey(Base):
    """A key that a client gave with a POST, and what the POST was answered with.

    Attributes:
        subject: who gave it: `token:ID`, or empty where no token is asked for.
        request: SHA-256 of what was asked, hex; the key with another request is refused.
        job_id: the job that answered; None where a stored schedule did, or a plan was asked for.
        plan_id: the plan that answered.
    """

    __tablename__ = "idempotency_keys"
    __table_args__ = (UniqueConstraint("subject", "key"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(String(32))
    key: Mapped[str] = mapped_column(String(255))
    request: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    plan_id: Mapped[int | None] = mapped_column(ForeignKey("plans.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)
