"""Tables of trials, schedules, ranges, scripts, proofs and reports."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, declared_attr, mapped_column, relationship

from tilewise.kernels.target.model import LONGEST_TARGET
from tilewise.search.records import LONGEST_SAMPLER, CacheMode, FailureClass, TrialState
from tilewise.service.db.base import Base, StoredPoint, now
from tilewise.service.db.models.jobs import Job, Problem
from tilewise.service.db.models.places import Machine, Toolchain

FAILED = "state = 'failed'"


class Trial(Base):
    """One finished trial of a job, as `tilewise.search.records.TrialRecord` has it.

    `samples` are wall times in seconds, little-endian float64; old ones are thinned, evenly by
    rank, from `samples_taken`. `time_us` is their median over `pace`, the speed factor of the
    machine.
    """

    __tablename__ = "trials"
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        CheckConstraint("state IN ('timed', 'pruned', 'failed')", name="state"),
        # How the trials of a job ended, and its fastest, without a look at their rows.
        Index("ix_trials_ended", "job_id", "state", "gflops", "time_us", "number"),
        # For the views of recent events and of failures.
        Index("ix_trials_created_at_job_id", "created_at", "job_id"),
        Index(
            "ix_trials_failed",
            "created_at",
            sqlite_where=text(FAILED),
            postgresql_where=text(FAILED),
        ),
    )

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    number: Mapped[int]
    hash: Mapped[str] = mapped_column(String(16))
    steps: Mapped[list[Any]]
    params: Mapped[dict[str, Any]] = mapped_column(StoredPoint)
    state: Mapped[TrialState] = mapped_column(String(16))
    origin: Mapped[str] = mapped_column(String(LONGEST_SAMPLER))
    failure: Mapped[FailureClass | None] = mapped_column(String(16))
    message: Mapped[str] = mapped_column(Text)
    gflops: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    time_us: Mapped[float | None]
    samples: Mapped[bytes]
    samples_taken: Mapped[int | None]
    pace: Mapped[float | None]
    rejected: Mapped[int]
    compile_s: Mapped[float]
    max_error: Mapped[float | None]
    created_at: Mapped[datetime] = mapped_column(default=now)

    job: Mapped[Job] = relationship()


class _OfWork:
    """What results of problems and of ranges share."""

    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    target: Mapped[str] = mapped_column(String(LONGEST_TARGET))
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchains.id"))
    machine_id: Mapped[int] = mapped_column(ForeignKey("machines.id"))
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"))
    cache: Mapped[CacheMode] = mapped_column(String(8), default="hot")
    budget: Mapped[int]
    elapsed_s: Mapped[float]
    digest: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=now)

    @declared_attr
    def problem(self) -> Mapped[Problem]:
        return relationship(lazy="joined", innerjoin=True)

    @declared_attr
    def toolchain(self) -> Mapped[Toolchain]:
        return relationship(lazy="joined", innerjoin=True)

    @declared_attr
    def machine(self) -> Mapped[Machine]:
        return relationship()

    @declared_attr
    def job(self) -> Mapped[Job]:
        return relationship()


class _Schedule(_OfWork):
    """What a stored result and a past one share."""

    hash: Mapped[str] = mapped_column(String(16))
    steps: Mapped[list[Any]]
    gflops: Mapped[float]
    low: Mapped[float]
    high: Mapped[float]
    time_us: Mapped[float]
    peak_gflops: Mapped[float]
    scratch_bytes: Mapped[dict[str, Any] | None]
    peers: Mapped[dict[str, Any] | None]
    measured: Mapped[dict[str, Any] | None]
    complete: Mapped[bool]


class Schedule(_Schedule, Base):
    """The best schedule of a problem on a target under a toolchain, for hot or cold caches.

    `budget` is the largest number of trials of any search of this row. `measured` describes the
    measurement (samples, placements of the buffers, discarded samples, cache eviction), None in
    older rows. `digest` is that of `tilewise.service.results.integrity`, None in older rows that
    disagreed with themselves.
    """

    __tablename__ = "schedules"
    __table_args__ = (UniqueConstraint("problem_id", "target", "toolchain_id", "cache"),)


class PastSchedule(_Schedule, Base):
    """A result that was the best until `ended_at`, or never was; columns as `Schedule`.

    `was_best` says whether it was the stored result until then.
    """

    __tablename__ = "past_schedules"
    __table_args__ = (
        Index("ix_past_schedules_work", "problem_id", "target", "toolchain_id", "cache"),
    )

    digest: Mapped[str] = mapped_column(String(64))
    was_best: Mapped[bool]
    ended_at: Mapped[datetime] = mapped_column(default=now)


class TunedRange(_OfWork, Base):
    """The variants that serve a range of sizes on a target under a toolchain.

    `problem` is the range. `family` is the SHA-256 of the range without its sizes, by which the
    ranges that contain a problem are found. `result` has the variants, the sizes that each serves
    and the times at the samples (`tilewise.search.ranges.result`). `loss_mean` and `loss_worst`
    compare the variants with the fastest schedule of each sample; 0.02 is 2% longer. `budget` is
    the least number of trials of a sample. `digest` is as in `Schedule`.
    """

    __tablename__ = "tuned_ranges"
    __table_args__ = (
        UniqueConstraint("problem_id", "target", "toolchain_id", "cache"),
        Index("ix_tuned_ranges_family", "family", "target"),
    )

    family: Mapped[str] = mapped_column(String(64))
    result: Mapped[dict[str, Any]]
    loss_mean: Mapped[float]
    loss_worst: Mapped[float]
    digest: Mapped[str] = mapped_column(String(64))


class Script(Base):
    """A transform script and its schedule; `sha256` of its text is the strong ETag."""

    __tablename__ = "scripts"

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
    """The proof of a script, including one that could not be generated.

    Only scripts with `ok` are served. `digest` is as in `Schedule`. The table is not called
    `proofs` because a view is.
    """

    __tablename__ = "script_proofs"
    __table_args__ = (
        CheckConstraint(
            "NOT ok OR (applied AND executed AND script_id IS NOT NULL)", name="ok_means_executed"
        ),
    )

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


class SuiteReport(Base):
    """A suite as it was measured once; a run that is reported twice is one row.

    `source` says where the problems come from. `counted` and `left_out` are numbers of problems.
    `ours_gflops` and `oracle_gflops` weight problems by their counts; the oracle is the fastest
    peer of each. `report` is the object of `tilewise bench --json`, `sha256` its hash.
    """

    __tablename__ = "suite_reports"
    __table_args__ = (Index("ix_suite_reports_place", "suite", "target", "id"),)

    suite: Mapped[str] = mapped_column(String(200))
    source: Mapped[str] = mapped_column(Text)
    target: Mapped[str] = mapped_column(String(LONGEST_TARGET))
    processor: Mapped[str] = mapped_column(String(200))
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchains.id"))
    counted: Mapped[int]
    left_out: Mapped[int]
    geomean_ratio: Mapped[float | None]
    ours_gflops: Mapped[float | None]
    oracle_gflops: Mapped[float | None]
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    report: Mapped[dict[str, Any]] = mapped_column(deferred=True)  # up to some 100 KiB
    created_at: Mapped[datetime] = mapped_column(default=now)

    toolchain: Mapped[Toolchain] = relationship(lazy="joined", innerjoin=True)
