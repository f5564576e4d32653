"""Plans of whole models that somebody asked for: what is known of them, and what came of them."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tilewise.kernels.problem import Accuracy
from tilewise.kernels.target.model import LONGEST_TARGET
from tilewise.schema.base import PlanLayouts, PlanState
from tilewise.search.records import CacheMode
from tilewise.service.db.base import Base, now
from tilewise.service.db.models.asked import ACTIVE
from tilewise.service.db.models.places import Toolchain


class Plan(Base):
    """A plan of a model: first the jobs of its problems run, then one worker makes the plan.

    Attributes:
        sha256: of the module, hex.
        name: what the model is called.
        target, trials, seed, cache: of the jobs.
        layouts: which are offered: the model's, or all that kernels can do.
        accuracy: of all problems.
        problems: of the model: objects of `problem`, `count`, `where`, and the `job` that was
            asked for it, null where a stored schedule answered.
        variants: problems that differ from the model's in layout and padding: objects of `problem`
            and `job`.
        skipped: objects of `op`, `reason` and `where`.
        source: what the plan is made of; None once it has ended.
        state: `queued` until a worker has the plan, also while its jobs run.
        owner, heartbeat_at, epoch, crashes: of the run that makes it, as those of a job.
        worker: process of a cluster that makes it for the owner, as its facts name it; None where
            the owner itself has it made.
        unserved_since: since when it has waited for a live worker that could make it; None where
            there is one, or its jobs run.
        phase: what that run does.
        plan: `tilewise/plan/1`, once it is chosen.
        totals: of the plan.
        script: that packs the module, with its proof in its header; None where there is none.
        proof: of the script: `max_error`, `tolerance`, `mlir`, and what it leaves to move.
        script_error: why there is no script.
        digest: of what `tilewise.service.plans.digests.digest` names, hex; None until a plan is
            chosen.
        token_id, request_id: of who asked.
    """

    __tablename__ = "plans"
    __table_args__ = (
        CheckConstraint(
            "state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name="state"
        ),
        CheckConstraint("state <> 'running' OR owner IS NOT NULL", name="running_has_owner"),
        # The same plan is never made twice at once, whoever races.
        Index(
            "uq_plans_active",
            "sha256",
            "name",
            "target",
            "toolchain_id",
            "trials",
            "seed",
            "cache",
            "layouts",
            "accuracy",
            unique=True,
            sqlite_where=text(ACTIVE),
            postgresql_where=text(ACTIVE),
        ),
        Index("ix_plans_state", "state", "target"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(200))
    target: Mapped[str] = mapped_column(String(LONGEST_TARGET))
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchains.id"))
    trials: Mapped[int]
    seed: Mapped[int] = mapped_column(BigInteger)
    cache: Mapped[CacheMode] = mapped_column(String(8))
    layouts: Mapped[PlanLayouts] = mapped_column(String(8))
    accuracy: Mapped[Accuracy] = mapped_column(String(8), server_default="standard")
    problems: Mapped[list[Any]]
    variants: Mapped[list[Any]]
    skipped: Mapped[list[Any]]
    state: Mapped[PlanState] = mapped_column(String(16), default="queued")
    owner: Mapped[str | None] = mapped_column(String(300))
    worker: Mapped[str | None] = mapped_column(String(300))
    heartbeat_at: Mapped[datetime | None]
    epoch: Mapped[int] = mapped_column(default=0)
    crashes: Mapped[int] = mapped_column(default=0)
    unserved_since: Mapped[datetime | None]
    phase: Mapped[str | None] = mapped_column(String(32))
    plan: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    totals: Mapped[dict[str, Any] | None]
    script: Mapped[str | None] = mapped_column(Text, deferred=True)
    proof: Mapped[dict[str, Any] | None]
    script_error: Mapped[str | None] = mapped_column(Text)
    digest: Mapped[str | None] = mapped_column(String(64))
    error: Mapped[str | None] = mapped_column(Text)
    token_id: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))
    request_id: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=now)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    toolchain: Mapped[Toolchain] = relationship(lazy="joined", innerjoin=True)
    source: Mapped["PlanSource | None"] = relationship(cascade="all, delete-orphan")


class PlanSource(Base):
    """What a plan is made of, until it has ended.

    It has a row of its own, since SQLite writes rows whole: in the plan's row, some changes of a
    lease would write the module again, and all would read it.

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
