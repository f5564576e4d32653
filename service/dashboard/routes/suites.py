"""Pages and plots of suites: what `tilewise bench` has found, over time."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from tilewise.service.api.documents import report_of, suite_report_json
from tilewise.service.api.lanes import in_lane
from tilewise.service.api.routes.jobs import LARGEST_ID
from tilewise.service.api.services import ServicesDep
from tilewise.service.dashboard.rendering import PageRoute, StoredRoute, page
from tilewise.service.dashboard.routes.pages import PageNumber
from tilewise.service.dashboard.suites import (
    PROBLEMS,
    before,
    changes,
    history,
    history_rows,
    latest,
    stored_keys,
    weighted_ratio,
)
from tilewise.service.db import models
from tilewise.service.plots import roofline, speeds
from tilewise.service.plots.style import Spec
from tilewise.service.results import suites

router = APIRouter(include_in_schema=False, route_class=PageRoute)
plots = APIRouter(prefix="/plots/suites", include_in_schema=False, route_class=StoredRoute)

ReportId = Annotated[int, Path(ge=1, le=LARGEST_ID)]


@router.get("/suites")
@in_lane("reads")
def every_suite(request: Request, services: ServicesDep) -> Response:
    """Each suite on each target, as it was measured last."""
    with services.reading() as session:
        rows = [{**_summed(row), "many": many} for row, many in latest(session)]
    return page(request, "suites.html", rows=rows)


@router.get("/suites/{number}")
@in_lane("reads")
def one_report(
    number: ReportId, request: Request, services: ServicesDep, part: PageNumber = 1
) -> Response:
    """A suite's table as `tilewise bench` prints it, beside the report before, and its history."""
    with services.reading() as session:
        row = suites.get(session, number)
        report, old = report_of(row), before(session, row)
        changed = changes(report, None if old is None else old[1])
        rows = list(zip(report["problems"], changed, strict=True))
        shown = rows[(part - 1) * PROBLEMS : part * PROBLEMS]
        keys = stored_keys(session, [one for one, _ in shown])
        past = [_summed(one) for one in history(session, row)]
        told = _summed(row)
    return page(
        request,
        "suite.html",
        told=told,
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
@in_lane("reads")
def of_history(number: ReportId, services: ServicesDep) -> Spec:
    """The ratios of a suite as its reports went by."""
    with services.reading() as session:
        row = suites.get(session, number)
        rows = history_rows(history(session, row))
    return speeds.history(f"{row.suite}: ours over the best peer", rows)


@plots.get("/{number}/roofline")
@in_lane("reads")
def of_roofline(number: ReportId, services: ServicesDep) -> Spec:
    """The problems of a report under the limits of its machine."""
    with services.reading() as session:
        return roofline.of_report(report_of(suites.get(session, number)))


def _summed(row: models.SuiteReport) -> dict[str, Any]:
    return {**suite_report_json(row), "weighted": weighted_ratio(row)}
