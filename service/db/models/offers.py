"""Jobs that are offered to the workers of a cluster, and candidates on their way between them."""

from datetime import datetime
from typing import Literal

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from tilewise.service.db.base import Base, now

OfferRole = Literal["leader", "helper"]

_LEADS = text("role = 'leader'")


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
        asked: what is to be timed, as JSON (`tilewise.service.runs.wire.candidates`); empty once
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
