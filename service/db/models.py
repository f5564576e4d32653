"""The tables: what was asked (problems, jobs), where (machines, toolchains), what came of it."""

from datetime import datetime
from typing import Any, Literal

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

from search.records import LONGEST_SAMPLER, CacheMode, FailureClass, TrialState
from service.db.base import Base, now

JobState = Literal["queued", "running", "done", "failed", "cancelled"]

ACTIVE = "state IN ('queued', 'running')"


class Problem(Base):
    """A problem, by its canonical string."""

    __tablename__ = "problems"

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    canonical: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Machine(Base):
    """A machine that has timed something."""

    __tablename__ = "machines"

    id: Mapped[int] = mapped_column(primary_key=True)
    host: Mapped[str] = mapped_column(String(255), unique=True)
    cpu: Mapped[str] = mapped_column(String(64))
    cores: Mapped[int]
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    caches: Mapped[dict[str, Any]]
    seen_at: Mapped[datetime] = mapped_column(default=now)


class Toolchain(Base):
    """The compilers and the generator that a result belongs to, as `kernels.system.toolchain`
    says.
    """

    __tablename__ = "toolchains"

    id: Mapped[int] = mapped_column(primary_key=True)
    identity: Mapped[str] = mapped_column(String(255), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Job(Base):
    """A search that somebody asked for, with the lease of the process that runs it.

    Attributes:
        trials, seconds, seed, sampler, peers, cache: the request.
        owner: process that holds the lease (`service.host.process_identity`), None unless running.
        heartbeat_at: when the owner last showed itself.
        epoch: number of the present run; each claim counts it up, and what a run writes
            carries it, so that a run which lost its claim writes nothing.
        crashes: runs that ended with the death of their process.
        elapsed_s: seconds of the finished runs; the present one counts from `claimed_at`.
        complete: whether the whole budget was spent, None until the job has ended.
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
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    target: Mapped[str] = mapped_column(String(100))
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchains.id"))
    trials: Mapped[int]
    seconds: Mapped[float | None]
    seed: Mapped[int] = mapped_column(BigInteger)
    sampler: Mapped[str] = mapped_column(String(LONGEST_SAMPLER))
    peers: Mapped[bool]
    cache: Mapped[CacheMode] = mapped_column(String(8), default="hot")
    state: Mapped[JobState] = mapped_column(String(16), default="queued")
    owner: Mapped[str | None] = mapped_column(String(300))
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

    problem: Mapped[Problem] = relationship(lazy="joined", innerjoin=True)
    toolchain: Mapped[Toolchain] = relationship(lazy="joined", innerjoin=True)


class Trial(Base):
    """One finished trial of a job, as `search.records.TrialRecord` has it.

    Attributes:
        samples: wall times in seconds, little-endian float64, as they were.
        pace: of the machine meanwhile, where it is known; `time_us` is the samples' median
            over it.
    """

    __tablename__ = "trials"
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        CheckConstraint("state IN ('timed', 'pruned', 'failed')", name="state"),
        # How the trials of a job ended, and its fastest, without a look at their rows.
        Index("ix_trials_ended", "job_id", "state", "gflops", "time_us"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    number: Mapped[int]
    hash: Mapped[str] = mapped_column(String(16))
    steps: Mapped[list[Any]]
    params: Mapped[dict[str, Any]]
    state: Mapped[TrialState] = mapped_column(String(16))
    origin: Mapped[str] = mapped_column(String(LONGEST_SAMPLER))
    failure: Mapped[FailureClass | None] = mapped_column(String(16))
    message: Mapped[str] = mapped_column(Text)
    gflops: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    time_us: Mapped[float | None]
    samples: Mapped[bytes]
    pace: Mapped[float | None]
    rejected: Mapped[int]
    compile_s: Mapped[float]
    max_error: Mapped[float | None]
    created_at: Mapped[datetime] = mapped_column(default=now)

    job: Mapped[Job] = relationship()


class Schedule(Base):
    """The best schedule of a problem on a target under a toolchain, for hot or cold caches.

    Attributes:
        job_id: the job that found it.
        budget: most trials that any search of this row has spent.
        peers: speeds of other libraries, None when they were not asked for.
        cache: whether the operands lay in the caches, or were evicted before each sample.
        measured: how the speed was had: samples, placements of the buffers, samples thrown
            away, and what emptied the caches; None in rows older than that.
        digest: of what `service.results.integrity` names, hex; None in an older row that disagreed
            with itself.
    """

    __tablename__ = "schedules"
    __table_args__ = (UniqueConstraint("problem_id", "target", "toolchain_id", "cache"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    target: Mapped[str] = mapped_column(String(100))
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchains.id"))
    machine_id: Mapped[int] = mapped_column(ForeignKey("machines.id"))
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"))
    hash: Mapped[str] = mapped_column(String(16))
    steps: Mapped[list[Any]]
    gflops: Mapped[float]
    low: Mapped[float]
    high: Mapped[float]
    time_us: Mapped[float]
    peak_gflops: Mapped[float]
    scratch_bytes: Mapped[dict[str, Any] | None]
    peers: Mapped[dict[str, Any] | None]
    cache: Mapped[CacheMode] = mapped_column(String(8), default="hot")
    measured: Mapped[dict[str, Any] | None]
    budget: Mapped[int]
    elapsed_s: Mapped[float]
    complete: Mapped[bool]
    digest: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=now)

    problem: Mapped[Problem] = relationship(lazy="joined", innerjoin=True)
    toolchain: Mapped[Toolchain] = relationship(lazy="joined", innerjoin=True)
    job: Mapped[Job] = relationship()


class Script(Base):
    """A transform script and the schedule that it spells; its proof says whether it may be served.

    Attributes:
        sha256: of the text in UTF-8, hex; the strong ETag.
    """

    __tablename__ = "scripts"

    id: Mapped[int] = mapped_column(primary_key=True)
    schedule_id: Mapped[int] = mapped_column(
        ForeignKey("schedules.id", ondelete="CASCADE"), index=True
    )
    flavor: Mapped[str] = mapped_column(String(16))
    hash: Mapped[str] = mapped_column(String(16))
    steps: Mapped[list[Any]]
    text: Mapped[str] = mapped_column(Text)
    sha256: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=now)


class Proof(Base):
    """What became of a script on real MLIR; also of one that could not even be written.

    Attributes:
        script_id: None when no script came about.
        ok: whether the script may be served.
        digest: of what `service.results.integrity` names, hex; None in an older row that disagreed
            with itself.
    """

    __tablename__ = "proofs"
    __table_args__ = (
        CheckConstraint(
            "NOT ok OR (applied AND executed AND script_id IS NOT NULL)", name="ok_means_executed"
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    schedule_id: Mapped[int] = mapped_column(
        ForeignKey("schedules.id", ondelete="CASCADE"), index=True
    )
    script_id: Mapped[int | None] = mapped_column(
        ForeignKey("scripts.id", ondelete="CASCADE"), unique=True
    )
    ok: Mapped[bool]
    applied: Mapped[bool]
    executed: Mapped[bool]
    max_error: Mapped[float | None]
    tolerance: Mapped[float | None]
    gflops: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    time_us: Mapped[float | None]
    mlir: Mapped[str] = mapped_column(String(100))
    failure: Mapped[str | None] = mapped_column(String(64))
    message: Mapped[str] = mapped_column(Text)
    digest: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=now)

    script: Mapped[Script | None] = relationship()
