"""Jobs whose target nobody serves: they wait, say so, and fail after a while."""

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from service.db.base import is_sound, now
from service.db.models import Job
from service.jobs import lease


def note_unserved(session: Session, served: Collection[tuple[str, str]], most: timedelta) -> int:
    """Note since when jobs wait for a worker that could run them; those that did for long fail.

    Args:
        session: a transaction that writes.
        served: each target that a live worker serves, with the toolchain of that worker.
        most: for which a job waits so.

    Returns:
        How many failed.
    """
    waiting = or_(Job.state == "queued", Job.unserved_since.is_not(None))
    query = select(Job).join(Job.toolchain).where(waiting, Job.state.in_(("queued", "running")))
    failed = 0
    for job in filter(is_sound, session.scalars(query)):
        if job.state != "queued" or (job.target, job.toolchain.identity) in served:
            job.unserved_since = None
        elif job.unserved_since is None:
            job.unserved_since = now()
        elif job.unserved_since < now() - most:
            failed += 1
            lease.fail(job, unserved(job.target, job.toolchain.identity, most))
    return failed


def unserved(target: str, toolchain: str, most: timedelta) -> str:
    """Why what waited for so long fails."""
    return (
        f"no live worker has served {target} with {toolchain} for "
        f"{most.total_seconds():.0f} s; start one, or ask for a target of GET /v1/targets"
    )
