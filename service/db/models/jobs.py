"""What was asked for: problems, jobs, whole models, and the workers that jobs are offered to."""

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
from tilewise.schema.base import JobState, PlanLayouts
from tilewise.search.records import LONGEST_SAMPLER, CacheMode
from tilewise.service.db.base import Base, now
from tilewise.service.db.models.places import Toolchain

JobKind = Literal["tune", "model"]
OfferRole = Literal["leader", "helper"]

ENDED: tuple[JobState, ...] = ("done", "failed", "cancelled")
ACTIVE = "state IN ('queued', 'running')"
_LEADS = text("role = 'leader'")


class Problem(Base):
    """A problem, by its canonical string."""

    __tablename__ = "problems"

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    canonical: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Job(Base):
    """Work that somebody asked for, with the lease of the process that runs it.

    Attributes:
        kind: `tune`: a search for one problem. `model`: a whole model, whose problems have jobs of
            kind `tune`; the job itself makes the plan once they have ended, and is done from the
            beginning where no plan was asked for.
        problem: of a job of kind `tune`; other kinds have none.
        trials, seconds, seed, sampler, peers, cache, spread: the request; of a model, that for each
            of its problems.
        work: names what a job of kind `model` makes; two with equal work, target and toolchain are
            never active at once.
        owner: process that holds the lease (`tilewise.service.host.process_identity`), None unless
            running.
        worker: process of a cluster that does the work for the owner, as its facts name it; None
            where the owner does it.
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
        CheckConstraint("kind <> 'tune' OR problem_id IS NOT NULL", name="tune_has_problem"),
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

    id: Mapped[int] = mapped_column(primary_key=True)
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
    """A key that a client gave with a POST, and what the POST was answered with.

    Attributes:
        subject: who gave it: `token:ID`, or empty where no token is asked for.
        request: SHA-256 of what was asked, hex; the key with another request is refused.
        job_id: the job that answered; None where a stored schedule did.
    """

    __tablename__ = "idempotency_keys"
    __table_args__ = (UniqueConstraint("subject", "key"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(String(32))
    key: Mapped[str] = mapped_column(String(255))
    request: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)


class Network(Base):
    """A model whose problems are tuned, and no more; it was read once.

    Attributes:
        job_id: of kind `model`, done from the beginning: the jobs and schedules of the problems say
            how far the model is.
        sha256: of the module, hex; problems and reasons are all else that is stored of it.
        problems: objects of `problem`, `count` and `where`, in the order of their first ops.
        skipped: objects of `op`, `reason` and `where`.
    """

    __tablename__ = "networks"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), unique=True)
    sha256: Mapped[str] = mapped_column(String(64))
    problems: Mapped[list[Any]]
    skipped: Mapped[list[Any]]

    job: Mapped[Job] = relationship(lazy="joined", innerjoin=True)


class Plan(Base):
    """The plan of a model: what its job of kind `model` is to make, and what came of it.

    Attributes:
        job_id: which is `queued` until a worker makes the plan, also while the problems are tuned.
        sha256: of the module, hex.
        name: what the model is called.
        layouts: which are offered: the model's, or all that kernels can do.
        accuracy: of all problems.
        problems: of the model: objects of `problem`, `count`, `where`, and the `job` that was
            asked for it, null where a stored schedule answered.
        variants: problems that differ from the model's in layout and padding: objects of `problem`
            and `job`.
        skipped: objects of `op`, `reason` and `where`.
        source: what the plan is made of; None once it has ended.
        plan: `tilewise/plan/1`, once it is chosen.
        totals: of the plan.
        script: that packs the module, with its proof in its header; None where there is none.
        proof: of the script: `max_error`, `tolerance`, `mlir`, and what it leaves to move.
        script_error: why there is no script.
        digest: of what `tilewise.service.jobs.plans.digest` names, hex; None until a plan is
            chosen.
    """

    __tablename__ = "plans"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), unique=True)
    sha256: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(200))
    layouts: Mapped[PlanLayouts] = mapped_column(String(8))
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
    """What a plan is made of, until it has ended.

    It has a row of its own, since SQLite writes rows whole: in the plan's row, each change would
    write the module again, and each look would read it.

    Attributes:
        plan_id: the plan.
        graph: nodes and tensors of the module, from which the plan is chosen.
        module: the module, compressed by zlib, of which the pack script is made and proven.
    """

    __tablename__ = "plan_sources"

    id: Mapped[int] = mapped_column(primary_key=True)
    plan_id: Mapped[int] = mapped_column(ForeignKey("plans.id", ondelete="CASCADE"), unique=True)
    graph: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    module: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)


class PlanEnding(Base):
    """A problem of a plan has ended, as the plan's events tell it.

    Attributes:
        plan_id: the plan.
        number: of the event, from 0 without gaps.
        part: the problem's place: among `problems`, then among `variants`.
    """

    __tablename__ = "plan_endings"
    __table_args__ = (UniqueConstraint("plan_id", "number"), UniqueConstraint("plan_id", "part"))

    id: Mapped[int] = mapped_column(primary_key=True)
    plan_id: Mapped[int] = mapped_column(ForeignKey("plans.id", ondelete="CASCADE"))
    number: Mapped[int]
    part: Mapped[int]


class Offer(Base):
    """A job that a driver has given to one worker, which runs it with the offer's token.

    Attributes:
        digest: SHA-256 of the token, hex; the token itself is nowhere.
        driver: the process that made the offer (`tilewise.service.host.process_identity`).
        worker: address of the worker; no worker has two offers.
        owner, epoch: of the run that has begun with the offer, or that a helper has joined; None
            before.
        seen_at: when the driver last showed itself.
        role: a job has one leader, which runs it, and may have helpers, which time for it.
        is_recalled: whether a helper is to leave its worker to another job.
    """

    __tablename__ = "offers"
    __table_args__ = (
        Index(
            "uq_offers_leader",
            "job_id",
            unique=True,
            sqlite_where=_LEADS,
            postgresql_where=_LEADS,
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
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
    """A point that the leader of a job has put out for its helpers to time.

    Attributes:
        epoch: of the leader's run; those of an earlier one are worth nothing.
        number: among the candidates of that run.
        asked: what is to be timed, as JSON (`tilewise.service.runs.wire.trials`); empty once
            its trial is stored.
        taken_by: digest of the offer of the helper that has it, or `leader`, which has taken it
            back; None while it waits.
        taken_at: when.
        answered_by: digest of the offer of the helper that has timed it.
        answer: the trial that came of it, as JSON; None before, and once it is stored.
        trial: number of the trial that it became.
    """

    __tablename__ = "candidates"
    __table_args__ = (UniqueConstraint("job_id", "epoch", "number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    epoch: Mapped[int]
    number: Mapped[int]
    asked: Mapped[str] = mapped_column(Text)
    taken_by: Mapped[str | None] = mapped_column(String(64))
    taken_at: Mapped[datetime | None]
    answered_by: Mapped[str | None] = mapped_column(String(64))
    answer: Mapped[str | None] = mapped_column(Text)
    trial: Mapped[int | None]
