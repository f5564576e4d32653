"""Jobs that are offered to the workers of a cluster."""

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from service.db.base import Base, now


class Offer(Base):
    """A job that a driver has given to one worker, which runs it with the offer's token.

    Attributes:
        digest: SHA-256 of the token, hex; the token itself is nowhere.
        driver: the process that made the offer (`service.host.process_identity`).
        worker: address of the worker; no worker has two offers.
        owner, epoch: of the run that has begun with the offer; None before.
        seen_at: when the driver last showed itself.
    """

    __tablename__ = "offers"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), unique=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    driver: Mapped[str] = mapped_column(String(300))
    worker: Mapped[str] = mapped_column(String(300), unique=True)
    owner: Mapped[str | None] = mapped_column(String(300))
    epoch: Mapped[int | None]
    seen_at: Mapped[datetime] = mapped_column(default=now)
