"""`/v1/runs`, where a job is spread: what its leader and its helpers say.

A helper's token allows nothing else. Every call may be sent twice.
"""

from datetime import timedelta
from http import HTTPStatus

from fastapi import APIRouter
from sqlalchemy.orm import Session

from tilewise.service.api.lanes import in_lane
from tilewise.service.api.problem_details import responses
from tilewise.service.api.routes.runs import PREFIX, Shown, ShownDep, require_registered
from tilewise.service.api.services import ServicesDep
from tilewise.service.db.models import Offer
from tilewise.service.errors import ConflictError, LeaseLostError, TamperedError
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.lease import Lease
from tilewise.service.runs import candidates, helping, offers
from tilewise.service.runs.checks import JobWork, check_answer, check_candidates
from tilewise.service.runs.keeper import SqlKeeper
from tilewise.service.runs.wire.orders import BeginWire, OrderWire
from tilewise.service.runs.wire.trials import ExchangedWire, ExchangeWire, GivenWire, HelpWire

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


@router.post("/join")
@in_lane("writes")
def join(body: BeginWire, shown: ShownDep, services: ServicesDep) -> OrderWire:
    """Join the run of a job as a helper: what is searched for, and the number of the run."""
    with services.writing() as session:
        row = offers.find(session, shown.job_id, shown.token, lock=True, role="helper")
        wanted = queue.get(session, shown.job_id).toolchain.identity
        if body.toolchain != wanted:
            raise ConflictError(
                f"job {shown.job_id} is for {wanted}, and this worker has {body.toolchain}"
            )
        require_registered(session, shown.job_id, body)
        job = helping.join(session, row, body.owner)
        joined = Lease(job.id, job.owner or "", job.epoch)
    keeper = SqlKeeper(services.sessions, joined)
    try:
        return OrderWire.of(keeper.order, joined.epoch, keeper.request_id)
    except TamperedError as error:
        raise LeaseLostError(f"job {shown.job_id} cannot be helped: {error}") from error


@router.post("/help")
@in_lane("writes")
def help_out(body: HelpWire, shown: ShownDep, services: ServicesDep) -> GivenWire:
    """Say what came of a candidate, and take others."""
    if body.answer is None:  # it asks again and again, and a writer would keep others waiting
        with services.reading() as session:
            row = _joined(session, shown, body.epoch)
            is_needed = helping.is_needed(queue.get(session, shown.job_id), row)
            if not (is_needed and candidates.has_any(session, row)):
                return GivenWire(candidates=[], word="go" if is_needed else "stop")
    with services.writing() as session:
        row = _joined(session, shown, body.epoch)
        if body.answer is not None:
            check_answer(JobWork.of(queue.get(session, shown.job_id)), body.answer)
            candidates.answer(session, row, body.answer)
        if not helping.is_needed(queue.get(session, shown.job_id), row):
            return GivenWire(candidates=[], word="stop")
        return GivenWire(candidates=candidates.take(session, row, body.wants), word="go")


def _joined(session: Session, shown: Shown, epoch: int) -> Offer:
    """Return the offer of a helper that has joined a run.

    Raises UnknownTokenError if the token is not one of a helper of this job, LeaseLostError if it
    has joined no run or another one.
    """
    row = offers.find(session, shown.job_id, shown.token, role="helper")
    if epoch != row.epoch:
        raise LeaseLostError(f"run {epoch} of job {shown.job_id} was not joined")
    return row
