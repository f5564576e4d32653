"""Reports of suites in the database: a row for each run of `tilewise bench`."""

import hashlib
import json

from sqlalchemy import func, select
from sqlalchemy.orm import Session, undefer

from tilewise.schema.base import Json
from tilewise.service.db import models
from tilewise.service.db.rows import inserted, required, toolchain_row


def keep(session: Session, report: Json) -> tuple[models.SuiteReport, bool]:
    """Store a report of `tilewise bench --json`; return the row, and whether it is new."""
    text = json.dumps(report, sort_keys=True, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    query = select(models.SuiteReport).where(models.SuiteReport.sha256 == digest)
    known = session.scalar(query)
    if known is not None:
        return known, False
    weighted = report["weighted"] or {}
    made = models.SuiteReport(
        suite=report["suite"],
        source=report["source"],
        target=report["machine"]["target"],
        processor=report["machine"]["processor"],
        toolchain=toolchain_row(session, report["machine"]["toolchain"]),
        counted=report["counted"],
        left_out=report["left_out"],
        geomean_ratio=report["geomean_ratio"],
        ours_gflops=weighted.get("ours_gflops"),
        oracle_gflops=weighted.get("oracle_gflops"),
        sha256=digest,
        report=report,
    )
    if inserted(session, made):
        return made, True
    return session.scalars(query).one(), False


def get(session: Session, number: int) -> models.SuiteReport:
    """Return a report by its number; raise NotFoundError or DamagedError."""
    whole = [undefer(models.SuiteReport.report)]
    found = session.get(models.SuiteReport, number, options=whole, populate_existing=True)
    return required(found, f"report {number}")


def latest(session: Session, limit: int) -> list[tuple[models.SuiteReport, int]]:
    """Return the newest report of each suite and target with the number of reports."""
    of_each = (
        select(func.max(models.SuiteReport.id).label("id"), func.count().label("many"))
        .group_by(models.SuiteReport.suite, models.SuiteReport.target)
        .subquery()
    )
    query = (
        select(models.SuiteReport, of_each.c.many)
        .join(of_each, of_each.c.id == models.SuiteReport.id)
        .order_by(models.SuiteReport.id.desc())
        .limit(limit)
    )
    return [(row, many) for row, many in session.execute(query)]
