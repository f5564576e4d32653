"""Verdicts on stored results against those of other toolchains."""

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from tilewise.search.verdicts import TOLERANCE, Verdict, verdict_of_speeds
from tilewise.service.db import models
from tilewise.service.db.rows import same_work
from tilewise.service.results import integrity


def verdict_of(session: Session, row: models.Schedule | models.PastSchedule) -> Verdict | None:
    """Return the verdict on a result against the newest earlier one of another toolchain."""
    other = models.Schedule
    query = (
        select(other)
        .where(*same_work(other, row, "toolchain_id"), other.toolchain_id != row.toolchain_id)
        .where(other.created_at <= row.created_at)
        .order_by(other.created_at.desc(), other.id.desc())
    )
    before = session.scalar(query.limit(1))
    if before is None or not (integrity.is_whole(before) and integrity.is_whole(row)):
        return None
    return verdict_of_speeds((before.low, before.high), (row.low, row.high), TOLERANCE)


def count_regressed(session: Session) -> int:
    """Return how many problems' newest result is slower than that of another toolchain."""
    row = models.Schedule
    work = (row.problem_id, row.target, row.cache)
    newest_first = (row.created_at.desc(), row.id.desc())
    known = case((row.low < row.high, row.low))  # a single sample decides nothing
    found = select(
        row.high,
        known.label("low"),
        func.max(known).over(partition_by=work).label("fastest"),
        func.row_number().over(partition_by=work, order_by=newest_first).label("age"),
    ).subquery()
    is_slower = found.c.high < (1 - TOLERANCE) * found.c.fastest  # as `verdict_of_speeds` decides
    newest = found.c.age == 1, found.c.low.is_not(None)
    return session.scalar(select(func.count()).where(*newest, is_slower)) or 0
