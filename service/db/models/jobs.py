"""Tables of problems, jobs, whole models, and offers of jobs to workers."""

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tilewise.kernels.problem import Accuracy
from tilewise.kernels.target.model import LONGEST_TARGET
from tilewise.schema.base import JobState
from tilewise.search.networks.request import Layouts
from tilewise.search.records import LONGEST_SAMPLER, CacheMode
from tilewise.service.db.base import Base, now
from tilewise.service.db.models.places import Toolchain

JobKind = Literal["tune", "range", "recheck", "model"]
OfferRole = Literal["leader", "helper"]

ENDED: tuple[JobState, ...] = ("done", "failed", "cancelled")
ACTIVE = "state IN ('queued', 'running')"
_LEADS = text("role = 'leader'")


class Problem(Base):
    """A problem, by its canonical string."""

    __tablename__ = "problems"

    key: Mapped[str] = mapped_column(String(64), unique=True)
    canonical: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Job(Base):
    """Requested work, with the lease of the process that runs it.

    A job of kind `tune` searches for one `problem`. A job of kind `range` tunes a range of sizes,
    its `problem`, whose samples have jobs of kind `tune`; `trials` is the budget of each. A job of
    kind `recheck` times the finalists of a result of another toolchain again. A job of
    kind `model` makes the plan of a whole model once the jobs of its problems have ended; without a
    plan it is done from the beginning, and `work` names what it makes.

    `owner` is the process (`tilewise.service.host.process_identity`) that holds the lease; `worker`
    is of rows of earlier versions. `host` is the machine of the last run.
    Every claim increments `epoch`, and a run writes only under its own epoch. `crashes` counts the
    deaths of processes since the last trial. `elapsed_s` covers all runs up to `claimed_at`, the
    last write. `complete` says whether the whole budget was spent. `request_id` and `token_id` are
    of the first request. `unserved_since` is since when no worker serves the target of a waiting
    job.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(
            "state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name="state"
        ),
        CheckConstraint("state <> 'running' OR owner IS NOT NULL", name="running_has_owner"),
        CheckConstraint("kind <> 'tune' OR problem_id IS NOT NULL", name="tune_has_problem"),
        # The same work is never queued twice, in any race.
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
        Index(
            "uq_jobs_active_work",
            "work",
            "target",
            "toolchain_id",
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

    kind: Mapped[JobKind] = mapped_column(String(16), default="tune", server_default="tune")
    problem_id: Mapped[int | None] = mapped_column(ForeignKey("problems.id"))
    target: Mapped[str] = mapped_column(String(LONGEST_TARGET))
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchains.id"))
    trials: Mapped[int]
    seconds: Mapped[float | None]
    seed: Mapped[int] = mapped_column(BigInteger)
    sampler: Mapped[str] = mapped_column(String(LONGEST_SAMPLER))
    peers: Mapped[bool]
    cache: Mapped[CacheMode] = mapped_column(String(8), default="hot")
    spread: Mapped[int] = mapped_column(default=1, server_default="1")
    work: Mapped[str | None] = mapped_column(String(400))
    state: Mapped[JobState] = mapped_column(String(16), default="queued")
    owner: Mapped[str | None] = mapped_column(String(300))
    worker: Mapped[str | None] = mapped_column(String(300))
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

    problem: Mapped[Problem] = relationship(lazy="joined")
    toolchain: Mapped[Toolchain] = relationship(lazy="joined", innerjoin=True)
    plan: Mapped["Plan | None"] = relationship(back_populates="job", passive_deletes=True)


class IdempotencyKey(Base):
    """A client's key of a POST, and its answer.

    `subject` is `token:ID`, or empty without tokens. `request` is the SHA-256 of the request; the
    key with another one is refused. `job_id` is None if a stored schedule answered.
    """

    __tablename__ = "idempotency_keys"
    __table_args__ = (UniqueConstraint("subject", "key"),)

    subject: Mapped[str] = mapped_column(String(32))
    key: Mapped[str] = mapped_column(String(255))
    request: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)


class Network(Base):
    """A model whose problems are tuned without a plan.

    Its job is done from the beginning; the jobs of the problems show the progress. `problems` are
    objects of `problem`, `count` and `where`, in the order of their first ops; `skipped` are
    objects of `op`, `reason` and `where`.
    """

    __tablename__ = "networks"

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), unique=True)
    sha256: Mapped[str] = mapped_column(String(64))
    problems: Mapped[list[Any]]
    skipped: Mapped[list[Any]]

    job: Mapped[Job] = relationship(lazy="joined", innerjoin=True)


class Plan(Base):
    """The plan of a model: what its job of kind `model` is to make, and the result.

    `problems` are objects of `problem`, `count`, `where` and `job`, null if a stored schedule
    answered; `variants` differ from them in layout and padding. `source` exists until the plan has
    ended. `plan` is `tilewise/plan/1`. `script` packs the module, or `script_error` says why there
    is none. `digest` is that of `tilewise.service.jobs.plans.digest`.
    """

    __tablename__ = "plans"

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), unique=True)
    sha256: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(200))
    layouts: Mapped[Layouts] = mapped_column(String(8))
    accuracy: Mapped[Accuracy] = mapped_column(String(8), server_default="standard")
    problems: Mapped[list[Any]]
    variants: Mapped[list[Any]]
    skipped: Mapped[list[Any]]
    plan: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    totals: Mapped[dict[str, Any] | None]
    script: Mapped[str | None] = mapped_column(Text, deferred=True)
    proof: Mapped[dict[str, Any] | None]
    script_error: Mapped[str | None] = mapped_column(Text)
    digest: Mapped[str | None] = mapped_column(String(64))

    job: Mapped[Job] = relationship(lazy="joined", innerjoin=True, back_populates="plan")
    source: Mapped["PlanSource | None"] = relationship(cascade="all, delete-orphan")


class PlanSource(Base):
    """The graph and the compressed module of a plan, until it has ended.

    It is a separate row because SQLite writes whole rows: every change of the plan would write the
    module again.
    """

    __tablename__ = "plan_sources"

    plan_id: Mapped[int] = mapped_column(ForeignKey("plans.id", ondelete="CASCADE"), unique=True)
    graph: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    module: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)


class PlanCompletion(Base):
    """A problem of a plan has ended, as the plan's events report it.

    `number` counts from 0 without gaps. `part` is the index among `problems`, then `variants`.
    """

    __tablename__ = "plan_endings"
    __table_args__ = (UniqueConstraint("plan_id", "number"), UniqueConstraint("plan_id", "part"))

    plan_id: Mapped[int] = mapped_column(ForeignKey("plans.id", ondelete="CASCADE"))
    number: Mapped[int]
    part: Mapped[int]


class Offer(Base):
    """A job that a driver has given to one worker, which runs it with the offer's token.

    A worker has one offer at most. A job has one leader and may have helpers. `owner` and `epoch`
    are of the run that began with the offer or was joined; `seen_at` is the last heartbeat of the
    driver.
    """

    __tablename__ = "offers"
    __table_args__ = (
        Index(
            "uq_offers_leader", "job_id", unique=True, sqlite_where=_LEADS, postgresql_where=_LEADS
        ),
    )

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    driver: Mapped[str] = mapped_column(String(300))
    worker: Mapped[str] = mapped_column(String(300), unique=True)
    owner: Mapped[str | None] = mapped_column(String(300))
    epoch: Mapped[int | None]
    seen_at: Mapped[datetime] = mapped_column(default=now)
    role: Mapped[OfferRole] = mapped_column(String(16), default="leader", server_default="leader")
    is_recalled: Mapped[bool] = mapped_column(default=False, server_default=false())


class Candidate(Base):
    """A point that the leader of a job offers to its helpers.

    `epoch` and `number` are of the leader's run. `asked` is JSON
    (`tilewise.service.runs.wire`), emptied once the trial is stored. `taken_by` and
    `answered_by` are digests of helpers' offers, or `leader` if it took the point back. `trial` is
    the number of the resulting trial.
    """

    __tablename__ = "candidates"
    __table_args__ = (UniqueConstraint("job_id", "epoch", "number"),)

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    epoch: Mapped[int]
    number: Mapped[int]
    asked: Mapped[str] = mapped_column(Text)
    taken_by: Mapped[str | None] = mapped_column(String(64))
    taken_at: Mapped[datetime | None]
    answered_by: Mapped[str | None] = mapped_column(String(64))
    answer: Mapped[str | None] = mapped_column(Text)
    trial: Mapped[int | None]
