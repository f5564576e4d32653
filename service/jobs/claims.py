"""Claims: the next job of a free process, and jobs that no process can take any more."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Select, and_, or_, select, text
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.orm import Session

from tilewise.service.db.base import now
from tilewise.service.db.models import ACTIVE, Job, JobKind, Toolchain
from tilewise.service.errors import ClaimError
from tilewise.service.host.process_identity import is_dead
from tilewise.service.jobs import registry
from tilewise.service.jobs.lease import LEASE, Lease, fail, fault_of, is_free, take
from tilewise.service.jobs.parts import is_tuned

ANY: tuple[JobKind, ...] = ("model", "tune", "range", "recheck")
"""In the order in which they are taken: planning a model takes less time than a search, and its
user has waited for all searches of the model already. A range takes as long as several searches.
Nobody waits for most rechecks."""


def claim(
    session: Session,
    owner: str,
    targets: Sequence[str],
    toolchain: str,
    *,
    kinds: Sequence[JobKind] = ANY,
    but: Collection[int] = (),
    spares_late: bool = False,
) -> Lease | None:
    """Claim the oldest free job that these targets and toolchain can run; None if there is none.

    A job of kind `model` is ready once its problems are tuned. A job whose row is damaged fails.
    Jobs of an earlier kind in `kinds` come first. `but` are jobs of the owner itself, whose
    heartbeat may be late after a suspend. `spares_late` leaves jobs with late heartbeats alone, as
    after an outage.

    Raises ClaimError for an unexpected failure of one job.
    """
    for kind in kinds:
        found = _waiting(session, kind, targets, toolchain, but=but, spares_late=spares_late)
        for job in _each_locked(session, found):
            try:
                taken = take(session, job, owner) if is_ready(session, job) else None
            except (OperationalError, InterfaceError):
                raise  # the database, not the job
            except Exception as error:
                raise ClaimError(job.id, f"it cannot be claimed: {error!r}") from error
            if taken is not None:
                return taken
    return None


def is_ready(session: Session, job: Job) -> bool:
    """Return whether a job waits for no other, or its row is damaged, so that it is to fail."""
    if job.kind != "model" or fault_of(job) is not None:
        return True
    return job.plan is not None and is_tuned(session, job.plan)


def _each_locked(session: Session, found: Select[Job]) -> Iterator[Job]:
    """Yield jobs by number, those that cannot be read among them.

    On a server each is locked as it is found, and those that another process looks at are passed
    over: of many that claim at once each finds a job of its own, and none waits for another.
    """
    one = found.limit(1).with_for_update(of=Job, skip_locked=True)
    after = 0
    while (job := session.scalar(one.where(Job.id > after))) is not None:
        after = job.id
        yield job


def _waiting(
    session: Session,
    kind: JobKind,
    targets: Sequence[str],
    toolchain: str,
    *,
    but: Collection[int] = (),
    spares_late: bool = False,
) -> Select[Job]:
    """Return the query for the jobs that could be taken, without locks."""
    # As text, for an index of the active rows alone serves only queries with the same text.
    of_these = Job.target.in_(targets), text(f"jobs.{ACTIVE}"), Job.kind == kind
    running = session.scalars(select(Job).where(*of_these, Job.state == "running"))
    orphans = [job.id for job in running if fault_of(job) or (job.owner and is_dead(job.owner))]
    can_be_had = or_(Job.state == "queued", Job.id.in_(orphans))
    if not spares_late:
        is_late = or_(Job.heartbeat_at.is_(None), Job.heartbeat_at < now() - LEASE)
        can_be_had = or_(can_be_had, and_(Job.state == "running", is_late))
    return (
        select(Job)
        .join(Job.toolchain)
        .where(*of_these, Toolchain.identity == toolchain, can_be_had, Job.id.not_in(but))
        .order_by(Job.id)
    )


def retire(session: Session, targets: Sequence[str], toolchain: str) -> int:
    """Fail free jobs of other toolchains that no live worker serves; return their number.

    Their trials were timed by code that is gone, so another toolchain does not continue them.
    """
    query = (
        select(Job)
        .join(Job.toolchain)
        .where(Job.target.in_(targets), Toolchain.identity != toolchain)
        .where(Job.state.in_(("queued", "running")))
        .with_for_update(of=Job)
    )
    served, retired = registry.served(session), 0
    for job in session.scalars(query).all():
        former = job.toolchain.identity
        if (job.target, former) in served or not (fault_of(job) or is_free(job)):
            continue
        retired += 1
        fail(session, job, f"its toolchain {former} is no longer installed here; request it again")
    return retired


def note_unserved(
    session: Session, served: Collection[tuple[str, str]], most: timedelta, began: datetime
) -> int:
    """Record since when jobs wait without a worker; fail those that have waited for `most`.

    `served` are the targets of live workers with their toolchains. The time before `began`, when
    the caller started to watch them, does not count. A model waits for its problems alone. Returns
    how many failed.
    """
    waiting = or_(Job.state == "queued", Job.unserved_since.is_not(None))
    query = select(Job).where(waiting, Job.state.in_(("queued", "running")))
    failed = 0
    # One that is being claimed at this moment is locked, and waits no more.
    for job in session.scalars(query.with_for_update(of=Job, skip_locked=True)):
        if fault_of(job) is not None:
            continue
        place = job.target, job.toolchain.identity
        if job.state != "queued" or place in served or not is_ready(session, job):
            job.unserved_since = None
        elif job.unserved_since is None:
            job.unserved_since = now()
        elif max(job.unserved_since, began) < now() - most:
            failed += 1
            fail(session, job, _unserved(*place, most))
    return failed


def _unserved(target: str, toolchain: str, most: timedelta) -> str:
    return (
        f"no live worker has served {target} with {toolchain} for "
        f"{most.total_seconds():.0f} s; start one, or use a target of GET /v1/targets"
    )
