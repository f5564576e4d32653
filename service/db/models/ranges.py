"""Ranges of sizes: the variants that serve each."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tilewise.kernels.target.model import LONGEST_TARGET
from tilewise.search.records import CacheMode
from tilewise.service.db.base import Base, now
from tilewise.service.db.models.jobs import Job, Problem
from tilewise.service.db.models.places import Machine, Toolchain


class TunedRange(Base):
    """The variants that serve a range of sizes on a target under a toolchain.

    `problem` is the range. `family` is the SHA-256 of the range without its sizes, by which the
    ranges that contain a problem are found. `result` has the variants, the sizes that each serves
    and the times at the samples (`tilewise.search.ranges.result`). `loss_mean` and `loss_worst`
    compare the variants with the fastest schedule of each sample; 0.02 is 2% longer. `budget` is
    the number of trials of each sample. `digest` is as in `Schedule`.
    """

    __tablename__ = "tuned_ranges"
    __table_args__ = (
        UniqueConstraint("problem_id", "target", "toolchain_id", "cache"),
        Index("ix_tuned_ranges_family", "family", "target"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    target: Mapped[str] = mapped_column(String(LONGEST_TARGET))
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchains.id"))
    machine_id: Mapped[int] = mapped_column(ForeignKey("machines.id"))
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"))
    cache: Mapped[CacheMode] = mapped_column(String(8))
    family: Mapped[str] = mapped_column(String(64))
    result: Mapped[dict[str, Any]]
    loss_mean: Mapped[float]
    loss_worst: Mapped[float]
    budget: Mapped[int]
    elapsed_s: Mapped[float]
    digest: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=now)

    problem: Mapped[Problem] = relationship(lazy="joined", innerjoin=True)
    toolchain: Mapped[Toolchain] = relationship(lazy="joined", innerjoin=True)
    machine: Mapped[Machine] = relationship()
    job: Mapped[Job] = relationship()
