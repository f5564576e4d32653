"""Claims: which job a process that is free takes next."""

from collections.abc import Collection, Sequence

from sqlalchemy import Select, and_, or_, select, text
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.orm import Session

from service.db.base import damage, now
from service.db.models import ACTIVE, Job, Toolchain
from service.errors import ClaimError
from service.host.process_identity import is_dead
from service.jobs import lease
from service.jobs.lease import Lease

# As text, for an index of the active jobs alone serves only who asks in its own words.
_ACTIVE_JOBS = f"jobs.{ACTIVE}"


def claim(
    session: Session,
    owner: str,
    targets: Sequence[str],
    toolchain: str,
    *,
    but: Collection[int] = (),
    spares_late: bool = False,
) -> Lease | None:
    """Take the oldest job that these targets and toolchain can run and that nobody runs.

    A job whose row is damaged fails with a message that says so.

    Args:
        session: a transaction that writes.
        owner: who takes it, from `service.host.process_identity.me`.
        targets: the canonical targets that this machine serves.
        toolchain: `kernels.system.toolchain.identity()`.
        but: jobs that are not taken, such as those that the owner runs already. Their
            heartbeat may be late though their process lives: after a SIGSTOP or a suspend.
        spares_late: whether jobs whose owner is silent are left to it, as for `lease.GRACE` after
            an outage of the database.

    Returns:
        The lease of the job, now running and owned; None when there is nothing to do.

    Raises:
        ClaimError: something unforeseen about one job, which the error names.
    """
    free = _free_jobs(session, targets, toolchain, spares_late=spares_late)
    one_by_one = free.where(Job.id.not_in(but)).limit(1)
    after = 0
    while (job := session.scalar(one_by_one.where(Job.id > after))) is not None:
        after = job.id
        try:
            taken = lease.claim_read(session, job, owner)
        except (OperationalError, InterfaceError):
            raise  # the database, not the job
        except Exception as error:
            raise ClaimError(job.id, f"it cannot be claimed: {error!r}") from error
        if taken is not None:
            return taken
    return None


def _free_jobs(
    session: Session, targets: Sequence[str], toolchain: str, *, spares_late: bool
) -> Select[Job]:
    """The jobs that wait, whose owner is silent or dead, or that cannot be read, by number.

    On a server each is locked as it is found, and those that another process looks at are passed
    over: of many that claim at once each finds a job of its own, and none waits for another.
    """
    of_these = Job.target.in_(targets), text(_ACTIVE_JOBS)
    running = session.scalars(select(Job).where(*of_these, Job.state == "running"))
    orphans = [job.id for job in running if damage(job) or (job.owner and is_dead(job.owner))]
    is_free = or_(Job.state == "queued", Job.id.in_(orphans))
    if not spares_late:
        is_late = or_(Job.heartbeat_at.is_(None), Job.heartbeat_at < now() - lease.LEASE)
        is_free = or_(is_free, and_(Job.state == "running", is_late))
    return (
        select(Job)
        .join(Job.toolchain)
        .where(*of_these, Toolchain.identity == toolchain, is_free)
        .order_by(Job.id)
        .with_for_update(of=Job, skip_locked=True)
    )
