"""What came of suites: a report for each run of `tilewise bench`."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tilewise.kernels.target.model import LONGEST_TARGET
from tilewise.service.db.base import Base, now
from tilewise.service.db.models.places import Toolchain


class SuiteReport(Base):
    """A suite as it was measured once; a run that is reported twice is one row.

    Attributes:
        suite, source: the suite's name, and where its problems come from.
        target, processor: what it was measured on.
        counted, left_out: problems that the sums are over, and those that they leave out.
        geomean_ratio: geometric mean of ours over the fastest peer; None where none is counted.
        ours_gflops, oracle_gflops: the work of the suite over its time, by count: with our
            schedules, and with the fastest peer of each problem.
        sha256: of the report, hex.
        report: the object that `tilewise bench --json` prints.
    """

    __tablename__ = "suite_reports"
    __table_args__ = (Index("ix_suite_reports_place", "suite", "target", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
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
