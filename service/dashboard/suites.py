"""Pages of suites: the list, and one suite over time and by problem."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.kernels.problem import parse_problem
from tilewise.schema.base import Json
from tilewise.service.api.documents import moment, report_of, suite_report_json
from tilewise.service.api.executors import in_executor
from tilewise.service.api.routes.suites import ReportId
from tilewise.service.api.services import ServicesDep
from tilewise.service.dashboard.rendering import PageRoute, StoredRoute, page
from tilewise.service.dashboard.routes.pages import PageNumber
from tilewise.service.db import models
from tilewise.service.db.base import is_sound
from tilewise.service.db.rows import newest
from tilewise.service.errors import DamagedError
from tilewise.service.plots import roofline, speeds
from tilewise.service.plots.drawing import Row, Spec
from tilewise.service.results import suites

HISTORY = 100  # reports of one suite that a page and its plot go back
PROBLEMS = 100  # rows of a table


@dataclass(frozen=True)
class Change:
    """Our speed over that in the report before; significant if the intervals are disjoint."""

    ratio: float
    is_significant: bool


def latest(session: Session) -> list[tuple[models.SuiteReport, int]]:
    """Return the newest report of each suite and target with the number of reports."""
    return [(row, many) for row, many in suites.latest(session, HISTORY) if is_sound(row)]


def history(session: Session, row: models.SuiteReport) -> list[models.SuiteReport]:
    """Return the reports of the same suite on the same target, newest first."""
    return [one for one in _like(session, row, None, HISTORY) if is_sound(one)]


def _like(
    session: Session, row: models.SuiteReport, before: int | None, limit: int
) -> list[models.SuiteReport]:
    model = models.SuiteReport
    same = model.suite == row.suite, model.target == row.target
    return newest(session, model, before, limit, *same)


def stored_keys(session: Session, problems: Sequence[Json]) -> dict[str, str]:
    """Return the stored problems of a table, with their keys."""
    keys = {row["problem"]: parse_problem(row["problem"]).key for row in problems}
    query = select(models.Problem.key).where(models.Problem.key.in_(keys.values()))
    known = set(session.scalars(query))
    return {problem: key for problem, key in keys.items() if key in known}


def before(session: Session, row: models.SuiteReport) -> tuple[int, Json] | None:
    """Return number and content of the previous report of the same suite and target.

    None for the first one, and if the previous one is damaged.
    """
    found = _like(session, row, row.id, 1)
    if not found or not is_sound(found[0]):
        return None
    try:
        return found[0].id, report_of(found[0])
    except DamagedError:
        return None


def changes(report: Json, old: Json | None) -> list[Change | None]:
    """Return the change in speed of each problem of a report; None if either lacks it."""
    known = {} if old is None else {row["problem"]: row["ours"] for row in old["problems"]}
    return [_change(row["ours"], known.get(row["problem"])) for row in report["problems"]]


def _change(new: Json | None, old: Json | None) -> Change | None:
    if new is None or old is None:
        return None
    apart = new["interval"][0] > old["interval"][1] or new["interval"][1] < old["interval"][0]
    return Change(new["gflops"] / old["gflops"], apart)


def history_rows(rows: Sequence[models.SuiteReport]) -> list[Row]:
    """Return ratios over time, for the plot of a suite's history."""
    made = []
    for row in reversed(rows):
        shown = {"when": moment(row.created_at), "toolchain": row.toolchain.identity}
        for series, value in (
            ("geometric mean", row.geomean_ratio),
            ("weighted by time", weighted_ratio(row)),
        ):
            if value is not None:
                made.append({**shown, "series": series, "value": round(value, 4)})
    return made


def weighted_ratio(row: models.SuiteReport) -> float | None:
    """Return the best peers' time for the suite over ours; None if no problem counts."""
    if row.ours_gflops is None or not row.oracle_gflops:
        return None
    return row.ours_gflops / row.oracle_gflops


router = APIRouter(include_in_schema=False, route_class=PageRoute)
plots = APIRouter(prefix="/plots/suites", include_in_schema=False, route_class=StoredRoute)


@router.get("/suites")
@in_executor("reads")
def every_suite(request: Request, services: ServicesDep) -> Response:
    """Return the page of the newest reports of all suites and targets."""
    with services.reading() as session:
        rows = [{**_summed(row), "many": many} for row, many in latest(session)]
    return page(request, "suites.html", rows=rows)


@router.get("/suites/{number}")
@in_executor("reads")
def one_report(
    number: ReportId, request: Request, services: ServicesDep, part: PageNumber = 1
) -> Response:
    """Return the page of a report: its table, changes since the previous one, and history."""
    with services.reading() as session:
        row = suites.get(session, number)
        report, old = report_of(row), before(session, row)
        changed = changes(report, None if old is None else old[1])
        rows = list(zip(report["problems"], changed, strict=True))
        shown = rows[(part - 1) * PROBLEMS : part * PROBLEMS]
        keys = stored_keys(session, [one for one, _ in shown])
        past = [_summed(one) for one in history(session, row)]
        summary = _summed(row)
    return page(
        request,
        "suite.html",
        summary=summary,
        report=report,
        old=None if old is None else old[0],
        rows=shown,
        keys=keys,
        narrow=any("output" in peer for one, _ in shown for peer in one["peers"].values()),
        history=past,
        number=part,
        pages=max(1, -(-len(rows) // PROBLEMS)),
    )


@plots.get("/{number}/history")
@in_executor("reads")
def of_history(number: ReportId, services: ServicesDep) -> Spec:
    """Return the plot of a suite's ratios over time."""
    with services.reading() as session:
        row = suites.get(session, number)
        rows = history_rows(history(session, row))
    return speeds.history(f"{row.suite}: ours over the best peer", rows)


@plots.get("/{number}/roofline")
@in_executor("reads")
def of_roofline(number: ReportId, services: ServicesDep) -> Spec:
    """Return the problems of a report under the limits of its machine."""
    with services.reading() as session:
        return roofline.of_report(report_of(suites.get(session, number)))


def _summed(row: models.SuiteReport) -> dict[str, Any]:
    return {**suite_report_json(row), "weighted": weighted_ratio(row)}
