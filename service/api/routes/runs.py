"""`/v1/runs`: the calls of cluster workers about their job.

Every call shows the token of an offer, which allows what its run does, or its helper, and nothing
else. Every call may be sent twice.
"""

from datetime import timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Response
from sqlalchemy.orm import Session

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.system.typed_json import to_json
from tilewise.search.records import Winner
from tilewise.service import errors
from tilewise.service.api.access.gate import bearer
from tilewise.service.api.executors import in_executor
from tilewise.service.api.problem_details import responses
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.db.models import JobKind, Offer
from tilewise.service.host.machine import MachineInfo
from tilewise.service.host.process_identity import host_of
from tilewise.service.jobs import lease, queue, registry
from tilewise.service.jobs.lease import Lease
from tilewise.service.jobs.plans import PlanAssignment
from tilewise.service.jobs.trial_store import SqlTrialStore, is_stored
from tilewise.service.runs import candidates, checks, helper_offers, offers, wire
from tilewise.service.runs.plan_checks import check_plan, checked_made
from tilewise.service.runs.sql import SqlPlanStore, SqlRun, SqlRunStore

GO, STOP = wire.WordWire(word="go"), wire.WordWire(word="stop")

router = APIRouter(
    prefix="/v1/runs/{job_id}",
    tags=["runs"],
    responses=responses(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
)


class ShownToken:
    """The token of a call, and the job that the call is for."""

    def __init__(
        self,
        job_id: Annotated[int, Path(ge=1, le=wire.LARGEST)],
        authorization: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> None:
        self.job_id, self.token = job_id, bearer(authorization)


ShownDep = Annotated[ShownToken, Depends()]


@router.post("/begin")
@in_executor("writes")
def begin(body: wire.BeginWire, shown: ShownDep, services: ServicesDep) -> wire.AssignmentWire:
    """Begin the run of an offer; return its work and its epoch."""
    with services.writing() as session:
        row = offers.find(session, shown.job_id, shown.token, lock=True)
        _require_registered(session, shown.job_id, body)
        held = offers.begin(session, row, body.owner)
    store = SqlRunStore(services.sessions, held)
    try:
        return wire.AssignmentWire.of(store.assignment, held.epoch, store.request_id)
    except errors.TamperedError as error:
        store.failed(str(error))
        raise errors.LeaseLostError(f"job {shown.job_id} has failed: {error}") from error


@router.post("/begin_plan")
@in_executor("writes")
def begin_plan(body: wire.BeginWire, shown: ShownDep, services: ServicesDep) -> wire.PlanWire:
    """Begin the run of an offer that makes a plan of the module at `/module`."""
    with services.writing() as session:
        row = offers.find(session, shown.job_id, shown.token, lock=True)
        _require_registered(session, shown.job_id, body, "model")
        held = offers.begin(session, row, body.owner)
    store = SqlPlanStore(services.sessions, held)
    try:
        return wire.PlanWire(epoch=held.epoch, order=to_json(store.assignment()[0]))
    except (KernelsError, errors.DamagedError, errors.TamperedError) as error:
        store.failed(str(error))
        raise errors.LeaseLostError(f"job {shown.job_id} has failed: {error}") from error


@router.get("/module")
@in_executor("reads")
def get_module(shown: ShownDep, services: ServicesDep) -> Response:
    """Return the module of a plan."""
    _, module = _plan_assignment(services, _held(services, shown))
    return Response(module, media_type="application/octet-stream")


@router.post("/chosen")
@in_executor("writes")
def note_chosen(body: wire.ChosenWire, shown: ShownDep, services: ServicesDep) -> wire.WordWire:
    """Store the phase of a run that makes a plan, and the plan once it is chosen."""
    held = _held(services, shown, body.epoch)
    if body.plan is not None:
        check_plan(_plan_assignment(services, held)[0], body.plan)
    SqlPlanStore(services.sessions, held).note(body.phase, body.plan)
    return GO


@router.post("/made")
@in_executor("writes")
def end_made(body: wire.MadeWire, shown: ShownDep, services: ServicesDep) -> wire.EndedWire:
    """End the job with the plan that was made, its proof marked with the host that proved it."""
    held = _held(services, shown, body.epoch)
    if _has_ended(services, held, "done"):
        return wire.EndedWire(ended=True)
    assignment, _ = _plan_assignment(services, held)
    made = checked_made(assignment, body.made, host_of(held.owner) or held.owner)
    return wire.EndedWire(ended=SqlPlanStore(services.sessions, held).done(made))


@router.post("/alive")
@in_executor("reads")
def alive(shown: ShownDep, services: ServicesDep) -> wire.WordWire:
    """Return whether the run goes on, and renew its lease."""
    with services.reading() as session:
        found = offers.pulse(session, shown.job_id, shown.token)
    if found.due is not None:
        with services.writing() as session:
            lease.beat(session, found.due)
    return GO if found.goes_on else STOP


@router.get("/trials")
@in_executor("reads")
def get_trials(
    shown: ShownDep, services: ServicesDep, start: Annotated[int, Query(ge=0, le=wire.LARGEST)] = 0
) -> wire.TrialsWire:
    """Return the job's finished trials, by number."""
    store = SqlTrialStore(services.sessions, shown.job_id, _held(services, shown))
    page, more = store.page(start, wire.TRIALS_A_PAGE)
    return wire.TrialsWire(trials=list(map(wire.TrialWire.model_validate, page)), next=more)


@router.post("/trials")
@in_executor("writes")
def add_trial(body: wire.AddWire, shown: ShownDep, services: ServicesDep) -> wire.WordWire:
    """Store a finished trial, which counts once this is answered; return whether to go on.

    A cancellation while the trial is being stored is reported by `alive`.
    """
    with services.reading() as session:
        held = _held_by(session, shown, body.epoch)
        goes_on = lease.holds(session, held)
        work = checks.JobWork.of(queue.get(session, shown.job_id))
        used, last = candidates.used(session, held, (), work.budget)
        known = is_stored(session, shown.job_id, body.trial.number)
        checks.check_trial(work, body.trial, used, last, is_stored=known)
    SqlTrialStore(services.sessions, shown.job_id, held).ensure(body.trial.record())
    return GO if goes_on else STOP


@router.get("/history")
@in_executor("reads")
def get_history(shown: ShownDep, services: ServicesDep) -> wire.HistoryWire:
    """Return earlier failures of the same work, and recent machine speeds of other jobs."""
    store = SqlTrialStore(services.sessions, shown.job_id, _held(services, shown))
    failures = sorted(store.known_failures())
    return wire.HistoryWire(known_failures=failures, earlier_paces=store.earlier_speed_factors())


@router.get("/earlier")
@in_executor("reads")
def get_earlier(
    shown: ShownDep, services: ServicesDep, operation: Annotated[str, Query(max_length=64)]
) -> wire.SearchesWire:
    """Return other jobs for an operation (`matmul`), newest first."""
    store = SqlTrialStore(services.sessions, shown.job_id, _held(services, shown))
    return wire.SearchesWire(
        searches=list(map(wire.EarlierWire.model_validate, store.earlier(operation)))
    )


@router.post("/solved")
@in_executor("reads")
def get_solved(body: wire.SearchKeysWire, shown: ShownDep, services: ServicesDep) -> wire.FoundWire:
    """Return the results of some of these jobs, in the order of the request."""
    store = SqlTrialStore(services.sessions, shown.job_id, _held(services, shown))
    return wire.FoundWire(
        found=list(map(wire.SolvedWire.model_validate, store.solved_by(body.keys)))
    )


@router.post("/phase")
@in_executor("writes")
def note_phase(body: wire.PhaseWire, shown: ShownDep, services: ServicesDep) -> wire.WordWire:
    """Store the current phase of the run."""
    held = _held(services, shown, body.epoch)
    SqlRunStore(services.sessions, held).note(body.phase())
    return GO


@router.post("/done")
@in_executor("writes")
def end_done(body: wire.EndWire, shown: ShownDep, services: ServicesDep) -> wire.EndedWire:
    """End the job with the result of the run."""
    with services.reading() as session:
        held = _held_by(session, shown, body.epoch)
        work = checks.JobWork.of(queue.get(session, shown.job_id))
        known = registry.find_machine(session, body.machine.host)
    store = SqlRunStore(services.sessions, held)
    trials = tuple(store.trials.trials())
    attempts = checks.checked_end(work, body, trials, held.owner, services.toolchain)
    machine = checks.known_machine(body.machine.to(MachineInfo), known)
    ended = store.done(body.result(trials), body.best.to(Winner), attempts, machine)
    return wire.EndedWire(ended=ended or _has_ended(services, held, "done"))


@router.post("/failed")
@in_executor("writes")
def end_failed(body: wire.FailWire, shown: ShownDep, services: ServicesDep) -> wire.EndedWire:
    """End the job without a result."""
    held = _held(services, shown, body.epoch)
    ended = SqlRun(services.sessions, held).failed(body.message)
    return wire.EndedWire(ended=ended or _has_ended(services, held, "failed"))


@router.post("/release")
@in_executor("writes")
def release(body: wire.EpochWire, shown: ShownDep, services: ServicesDep) -> wire.EndedWire:
    """Return the job to the queue."""
    held = _held(services, shown, body.epoch)
    SqlRun(services.sessions, held).release()
    return wire.EndedWire(ended=True)


@router.post("/crashed")
@in_executor("writes")
def crashed(body: wire.CrashWire, shown: ShownDep, services: ServicesDep) -> wire.EndedWire:
    """Record the death of the run's process: the job is queued again, or fails after several.

    The death of a helper does not count against the job.
    """
    with services.writing() as session:
        row = offers.find(session, shown.job_id, shown.token, lock=True, role=None)
        is_run = row.role == "leader" and row.epoch is not None
        if is_run and lease.holds(session, offers.held_by(row)):
            lease.crash(session, offers.held_by(row), body.why)
    return wire.EndedWire(ended=True)


@router.post("/candidates")
@in_executor("writes")
def exchange(body: wire.ExchangeWire, shown: ShownDep, services: ServicesDep) -> wire.ExchangedWire:
    """Offer candidates to helpers; store and return the trials of others."""
    offered = [one.candidate() for one in body.offered]
    late = timedelta(seconds=body.late_s)
    with services.writing() as session:
        held = _held_by(session, shown, body.epoch)
        work = checks.JobWork.of(queue.get(session, shown.job_id))
        numbers = [one.number for one in offered]
        taken, _ = candidates.used(session, held, numbers, work.budget)
        checks.check_candidates(work, body.offered, taken)
        candidates.exchange(session, held, offered, body.back, late)
    with services.reading() as session:
        found = candidates.outcome(session, held, body.start)
        word = "go" if lease.holds(session, held) else "stop"
        return wire.ExchangedWire.model_validate({**vars(found), "word": word})


@router.post("/join")
@in_executor("writes")
def join(body: wire.BeginWire, shown: ShownDep, services: ServicesDep) -> wire.AssignmentWire:
    """Join the run of a job as a helper: what is searched for, and the number of the run."""
    with services.writing() as session:
        row = offers.find(session, shown.job_id, shown.token, lock=True, role="helper")
        _require_registered(session, shown.job_id, body)
        job = helper_offers.join(session, row, body.owner)
        joined = Lease(job.id, job.owner or "", job.epoch)
    store = SqlRunStore(services.sessions, joined)
    try:
        return wire.AssignmentWire.of(store.assignment, joined.epoch, store.request_id)
    except errors.TamperedError as error:
        raise errors.LeaseLostError(f"job {shown.job_id} cannot be helped: {error}") from error


@router.post("/help")
@in_executor("writes")
def help_out(body: wire.HelpWire, shown: ShownDep, services: ServicesDep) -> wire.GivenWire:
    """Report the trial of a candidate, and take others."""
    if body.answer is None:  # it polls, and a writer would block others
        with services.reading() as session:
            row = _joined(session, shown, body.epoch)
            is_needed = helper_offers.is_needed(queue.get(session, shown.job_id), row)
            if not (is_needed and candidates.has_any(session, row)):
                return wire.GivenWire(candidates=[], word="go" if is_needed else "stop")
    with services.writing() as session:
        row = _joined(session, shown, body.epoch)
        if body.answer is not None:
            checks.check_answer(checks.JobWork.of(queue.get(session, shown.job_id)), body.answer)
            candidates.answer(session, row, body.answer)
        if not helper_offers.is_needed(queue.get(session, shown.job_id), row):
            return wire.GivenWire(candidates=[], word="stop")
        return wire.GivenWire(candidates=candidates.take(session, row, body.wants), word="go")


def _require_registered(
    session: Session, job_id: int, body: wire.BeginWire, kind: JobKind = "tune"
) -> None:
    """Raise ConflictError for other compilers or another kind of job.

    Raise RefusedError for a machine without a worker.
    """
    try:
        job = queue.get(session, job_id, kind=kind)
    except errors.NotFoundError:  # an offer has a job
        way = "/begin" if kind == "model" else "/begin_plan"
        raise errors.ConflictError(f"job {job_id} is not of kind {kind}; call {way}") from None
    wanted = job.toolchain.identity
    if body.toolchain != wanted:
        raise errors.ConflictError(
            f"job {job_id} is for {wanted}, and this worker has {body.toolchain}"
        )
    checks.check_begin(body.owner, registry.hosts(session, job.target, body.toolchain))


def _held(services: Services, shown: ShownToken, epoch: int | None = None) -> Lease:
    """What `_held_by` finds, in a session of its own."""
    with services.reading() as session:
        return _held_by(session, shown, epoch)


def _held_by(session: Session, shown: ShownToken, epoch: int | None) -> Lease:
    """Return the lease of the run that began with a token; check its epoch if given.

    Raises UnknownTokenError for a token of another job, LeaseLostError for another run.
    """
    held = offers.held_by(offers.find(session, shown.job_id, shown.token))
    if epoch not in (None, held.epoch):
        raise errors.LeaseLostError(f"run {epoch} of job {shown.job_id} is over")
    return held


def _plan_assignment(services: Services, held: Lease) -> tuple[PlanAssignment, bytes]:
    """Return the order of a plan; LeaseLostError once its run is over, and its module dropped."""
    with services.reading() as session:
        if not lease.holds(session, held):
            raise errors.LeaseLostError(f"run {held.epoch} of job {held.job_id} is over")
    return SqlPlanStore(services.sessions, held).assignment()


def _has_ended(services: Services, held: Lease, state: str) -> bool:
    """Whether the job has ended with this run, whose first answer did not arrive."""
    with services.reading() as session:
        return lease.has_left(session, held, state)


def _joined(session: Session, shown: ShownToken, epoch: int) -> Offer:
    """Return the offer of a helper that has joined a run.

    Raises UnknownTokenError if the token is not one of a helper of this job, LeaseLostError if it
    has joined no run or another one.
    """
    row = offers.find(session, shown.job_id, shown.token, role="helper")
    if epoch != row.epoch:
        raise errors.LeaseLostError(f"run {epoch} of job {shown.job_id} was not joined")
    return row
