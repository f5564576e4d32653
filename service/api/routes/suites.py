"""`/v1/suite-reports`: what `tilewise bench` has measured, over time."""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse

from tilewise.service.api.documents import report_of, suite_report_json
from tilewise.service.api.executors import in_executor
from tilewise.service.api.problem_details import responses
from tilewise.service.api.routes.jobs import LARGEST_ID, Cursor, Limit
from tilewise.service.api.schemas import SuiteReportPage, SuiteReportView, WholeReportView
from tilewise.service.api.services import ServicesDep
from tilewise.service.api.suite_reports import SuiteReport
from tilewise.service.db.models import SuiteReport as SuiteRow
from tilewise.service.db.rows import given, newest
from tilewise.service.results import suites
from tilewise.service.results.readable import RowPage

PATH = "/v1/suite-reports"

router = APIRouter(prefix=PATH, tags=["suites"])

ReportId = Annotated[int, Path(ge=1, le=LARGEST_ID)]
SuiteName = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")]


@router.post(
    "",
    response_model=SuiteReportView,
    status_code=HTTPStatus.CREATED,
    responses={
        HTTPStatus.OK.value: {"model": SuiteReportView, "description": "It was stored before"},
        **responses(HTTPStatus.UNPROCESSABLE_ENTITY),
    },
)
@in_executor("writes")
def post_report(body: SuiteReport, services: ServicesDep) -> Response:
    """Store a report: 201, or 200 for one that is stored already."""
    with services.writing() as session:
        row, is_new = suites.keep(session, body.document())
        session.flush()
        answer = suite_report_json(row)
    status = HTTPStatus.CREATED if is_new else HTTPStatus.OK
    found = SuiteReportView.model_validate(answer).model_dump(mode="json")
    return JSONResponse(found, status, headers={"Location": f"{PATH}/{answer['id']}"})


@router.get("", response_model=SuiteReportPage)
@in_executor("reads")
def list_reports(
    services: ServicesDep, suite: SuiteName = None, cursor: Cursor = None, limit: Limit = 100
) -> dict[str, Any]:
    """List reports without their problems, newest first; optionally of one suite."""
    with services.reading() as session:
        of_suite = given((SuiteRow.suite, suite))
        found = newest(session, SuiteRow, cursor, limit + 1, *of_suite)
        page = RowPage("reports", PATH, limit, {"suite": suite})
        return page.of(found, suite_report_json, SuiteReportView)


@router.get(
    "/{report_id}", response_model=WholeReportView, responses=responses(HTTPStatus.NOT_FOUND)
)
@in_executor("reads")
def get_report(report_id: ReportId, services: ServicesDep) -> dict[str, Any]:
    """Return one complete report."""
    with services.reading() as session:
        row = suites.get(session, report_id)
        return {**suite_report_json(row), "report": report_of(row)}
