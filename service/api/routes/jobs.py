"""`/v1/jobs`: request, watch and cancel searches."""

from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem import Problem, ProblemRange, parse_any
from tilewise.schema.base import JobState
from tilewise.search.records import TrialState, TuneRequest
from tilewise.service.api.access import caller_of, request_id_of
from tilewise.service.api.documents import job_json, trial_json
from tilewise.service.api.executors import in_executor
from tilewise.service.api.problem_details import responses
from tilewise.service.api.range_documents import stored_json
from tilewise.service.api.requests import JobRequest
from tilewise.service.api.schemas import (
    JobPage,
    JobView,
    RangeView,
    ResultView,
    TrialPage,
    TrialView,
)
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.jobs import idempotency, queue, rechecks
from tilewise.service.jobs.idempotency import RequestKey
from tilewise.service.jobs.queue import Submission, Submitter
from tilewise.service.results.readable import RowPage

LARGEST_ID = 2**31 - 1

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

JobId = Annotated[int, Path(ge=1, le=LARGEST_ID)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Cursor = Annotated[int | None, Query(ge=0, le=LARGEST_ID)]
IdempotencyKey = Annotated[str | None, Header(pattern=r"^[\x21-\x7e]+$", max_length=255)]


@router.post(
    "",
    response_model=ResultView | RangeView | JobView,
    responses={
        HTTPStatus.ACCEPTED.value: {"model": JobView, "description": "A new or running job"},
        **responses(
            HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE
        ),
    },
)
async def post_job(
    body: JobRequest,
    request: Request,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Tune a problem or a range: answer 200 with a stored result, else 202 with the job.

    The kind `recheck` times the stored winner of an earlier toolchain and its runners-up again,
    without a search; the job has a `verdict`. The answer is 404 if there is no such winner.

    The job of a range has no trials: each sample is searched by a separate job.

    With an `Idempotency-Key`, the same request within a day returns the same job, even if that
    has ended.

    With `wait` the answer is sent when the job has ended: 200 with its schedule, or 202 with the
    failed or cancelled job. If the service stops first, the answer is 202 with the job as it is.
    """
    sender = Sender.of(request, services, idempotency_key)
    job_id, answer = await services.executors.writes.run(partial(submit, services, body, sender))
    if body.wait and job_id is not None:
        await services.feeds.wait_for_end(("job", job_id), request.is_disconnected)
        answer = await services.executors.reads.run(partial(_final_answer, services, job_id))
    return answer


@router.get("", response_model=JobPage)
@in_executor("reads")
def list_jobs(
    services: ServicesDep, state: JobState | None = None, cursor: Cursor = None, limit: Limit = 100
) -> dict[str, Any]:
    """List jobs, newest first."""
    with services.reading() as session:
        found = queue.list_jobs(session, state=state, before=cursor, limit=limit + 1)
        page = RowPage("jobs", "/v1/jobs", limit, {"state": state})
        return page.of(found, partial(job_json, session), JobView)


@router.get("/{job_id}", response_model=JobView, responses=responses(HTTPStatus.NOT_FOUND))
@in_executor("reads")
def get_job(job_id: JobId, services: ServicesDep) -> dict[str, Any]:
    """Return state, progress and the best result so far."""
    with services.reading() as session:
        return job_json(session, queue.get(session, job_id))


@router.delete(
    "/{job_id}",
    response_model=JobView,
    responses=responses(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
)
@in_executor("writes")
def cancel_job(job_id: JobId, request: Request, services: ServicesDep) -> dict[str, Any]:
    """Cancel a job; its trials stay stored.

    A token of scope `submit` may cancel its own jobs, one of scope `admin` any.
    """
    only_of = caller_of(request).only_of
    with services.writing() as session:
        answer = job_json(session, queue.cancel(session, job_id, only_of))
    services.wake()
    return answer


@router.get("/{job_id}/trials", response_model=TrialPage, responses=responses(HTTPStatus.NOT_FOUND))
@in_executor("reads")
def list_trials(
    job_id: JobId,
    services: ServicesDep,
    state: TrialState | None = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> dict[str, Any]:
    """Return the finished trials of a job, by number."""
    with services.reading() as session:
        queue.get(session, job_id)
        found = queue.trials_page(session, job_id, state=state, after=cursor, limit=limit + 1)
        page = RowPage("trials", f"/v1/jobs/{job_id}/trials", limit, {"state": state})
        return page.of(found, trial_json, TrialView, attrgetter("number"))


@dataclass(frozen=True)
class Sender:
    """Who sends a request, and by what key."""

    by: Submitter
    subject: str
    key: str | None

    @classmethod
    def of(cls, request: Request, services: Services, key: str | None = None) -> "Sender":
        """Return the sender of this request."""
        caller = caller_of(request)
        by = Submitter(caller.token_id, request_id_of(request), services.jobs_in_flight)
        return cls(by, caller.subject, key)

    def named(self, digest: str) -> RequestKey | None:
        """Return the key of a request of this digest, if it has one."""
        return None if self.key is None else RequestKey(self.subject, self.key, digest)


def submit(services: Services, body: JobRequest, sender: Sender) -> tuple[int | None, JSONResponse]:
    """Validate and store a request; return the number of a job to wait for, if any."""
    problem = parse_any(body.problem)
    target = services.require_served(body.target)
    request = TuneRequest.of(body)
    if isinstance(problem, ProblemRange) and body.kind == "recheck":
        raise ProblemError(f"{problem}: ranges are not rechecked; tune it", problem.dims[0])
    services.check_memory(queue.check_covered(problem, target, has_cluster=services.has_cluster))
    with services.writing() as session:
        made = _made(session, services, sender, (problem, target, request, body.again, body.kind))
        if made.stored is not None:
            return None, JSONResponse(stored_json(session, made.stored, services.toolchain))
        assert made.job is not None
        job_id, answer = made.job.id, job_json(session, made.job)
    services.wake()
    return job_id, _accepted(answer)


Wanted = tuple[Problem | ProblemRange, str, TuneRequest, bool, str]
"""A problem, target, request, whether to time stored finalists again, and the kind of the job."""


def _made(session: Session, services: Services, sender: Sender, wanted: Wanted) -> Submission:
    """What answers a request: what has answered it before, a stored schedule, or a job."""
    by = sender.by
    problem, target, request, again, kind = wanted
    submit = rechecks.time_again if again else queue.create_or_join
    send = partial(submit, session, problem, target, request, services.toolchain, by)
    if kind == "recheck" and isinstance(problem, Problem):
        recheck = session, problem, target, request, services.toolchain, by
        send = partial(rechecks.request_recheck, *recheck)
    given = sender.named(idempotency.digest_of(*wanted))
    if given is None:
        return send()
    before = idempotency.answered(session, given)
    if before is not None:
        return Submission(job=before)
    made = send()
    # Who was late has joined the job of who was first.
    idempotency.remember(session, given, made.job)
    return made


def _accepted(answer: dict[str, Any]) -> JSONResponse:
    headers = {"Location": answer["links"]["self"]}
    return JSONResponse(answer, HTTPStatus.ACCEPTED, headers=headers)


def _final_answer(services: Services, job_id: int) -> JSONResponse:
    """The schedule that a done job has found or confirmed, else the job as it is."""
    with services.reading() as session:
        job = queue.get(session, job_id)
        stored = queue.result_of(session, job)
        if stored is None:
            return _accepted(job_json(session, job))
        return JSONResponse(stored_json(session, stored, services.toolchain))
