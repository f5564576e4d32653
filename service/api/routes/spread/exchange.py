"""What the leader of a job that is spread says: one call, which may be sent twice."""

from datetime import timedelta
from http import HTTPStatus

from fastapi import APIRouter

from tilewise.service.api.lanes import in_lane
from tilewise.service.api.problem_details import responses
from tilewise.service.api.routes.runs import PREFIX, ShownDep
from tilewise.service.api.services import ServicesDep
from tilewise.service.errors import LeaseLostError
from tilewise.service.jobs import lease, queue
from tilewise.service.runs import candidates, offers
from tilewise.service.runs.checks.trials import check_candidates
from tilewise.service.runs.checks.work import JobWork
from tilewise.service.runs.wire.candidates import ExchangedWire, ExchangeWire

router = APIRouter(
    prefix=f"{PREFIX}/{{job_id}}",
    tags=["runs"],
    responses=responses(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
)


@router.post("/candidates")
@in_lane("writes")
def exchange(body: ExchangeWire, shown: ShownDep, services: ServicesDep) -> ExchangedWire:
    """Put candidates out for helpers, and store what came of others; the leader learns of it."""
    offered = [one.candidate() for one in body.offered]
    late = timedelta(seconds=body.late_s)
    with services.writing() as session:
        held = offers.held_by(offers.find(session, shown.job_id, shown.token))
        if body.epoch != held.epoch:
            raise LeaseLostError(f"run {body.epoch} of job {shown.job_id} is over")
        work = JobWork.of(queue.get(session, shown.job_id))
        numbers = [one.number for one in offered]
        taken, _ = candidates.used(session, held, numbers, work.budget)
        check_candidates(work, body.offered, taken)
        candidates.exchange(session, held, offered, body.back, late)
    with services.reading() as session:
        found = candidates.outcome(session, held, body.start)
        return ExchangedWire.of(found, "go" if lease.holds(session, held) else "stop")
