"""Verdicts on stored results against those of other toolchains."""

from typing import Any

from sqlalchemy import Label, func, select
from sqlalchemy.orm import Session, aliased

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


def place_and_faster(present: str) -> tuple[Label[Any], Label[Any]]:
    """Select the place of a schedule among those of its work, and a faster one.

    In place 1 is that of the `present` toolchain, else the newest. The faster one is the fastest of
    another toolchain, by the rule of `verdict_of_speeds`. The query joins schedules and toolchains.
    """
    row, other = models.Schedule, aliased(models.Schedule)
    is_present = models.Toolchain.identity == present
    place = func.row_number().over(
        partition_by=(row.problem_id, row.target, row.cache),
        order_by=(is_present.desc(), row.created_at.desc(), row.id.desc()),
    )
    faster = (
        select(other.id)
        .where(*same_work(other, row, "toolchain_id"), other.toolchain_id != row.toolchain_id)
        .where(other.low < other.high, row.low < row.high)
        .where(row.high < (1 - TOLERANCE) * other.low)
        .order_by(other.low.desc())
        .limit(1)
    )
    return place.label("place"), faster.scalar_subquery().label("faster")


def count_regressed(session: Session, present: str) -> int:
    """Return how many problems the dashboard shows as slower than before."""
    each = select(*place_and_faster(present)).join_from(models.Schedule, models.Toolchain)
    found = each.subquery().c
    query = select(func.count()).where(found.place == 1, found.faster.is_not(None))
    return session.scalar(query) or 0
