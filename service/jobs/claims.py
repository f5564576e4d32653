"""Claims: which job a process that is free takes next."""

from collections.abc import Collection, Sequence

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.orm import Session

from tilewise.service.errors import ClaimError
from tilewise.service.jobs import lease
from tilewise.service.jobs.lease import JOBS, Lease


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
        owner: who takes it, from `tilewise.service.host.process_identity.me`.
        targets: the canonical targets that this machine serves.
        toolchain: `tilewise.kernels.system.toolchain.identity()`.
        but: jobs that are not taken, such as those that the owner has already.
        spares_late: whether those whose owner is silent are left to it, as for `GRACE` after an
            outage of the database.

    Returns:
        The lease of the job, now running and owned; None when there is nothing to do.

    Raises:
        ClaimError: something unforeseen about one job, which the error names.
    """
    for job in JOBS.free(session, targets, toolchain, but=but, spares_late=spares_late):
        try:
            taken = lease.claim_read(session, job, owner)
        except (OperationalError, InterfaceError):
            raise  # the database, not the job
        except Exception as error:
            raise ClaimError(job.id, f"it cannot be claimed: {error!r}") from error
        if taken is not None:
            return taken
    return None
