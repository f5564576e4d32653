"""Events of a job: trials, phases and the end."""

import logging
from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tilewise.search.progress import SearchPhase
from tilewise.service.db import models
from tilewise.service.db.base import now
from tilewise.service.db.session import Sessions, writing
from tilewise.service.errors import DatabaseError
from tilewise.service.jobs.lease import Lease

LATE_TRIAL = timedelta(seconds=2)
"""A cancelled run may store the trial that was under way for so long."""

log = logging.getLogger(__name__)


def last_number(session: Session, job_id: int) -> int:
    """Return the number of a job's last trial, or -1."""
    query = select(func.max(models.Trial.number)).where(models.Trial.job_id == job_id)
    last = session.scalar(query)
    return -1 if last is None else last


def note_phase(sessions: Sessions, held: Lease, phase: SearchPhase) -> None:
    """Store what a run does now; a database that fails is no reason to end the run."""
    statement = (
        held.of_run()
        .values(phase=phase.name, phase_done=phase.done, phase_total=phase.total)
        .execution_options(synchronize_session=False)
    )
    try:
        with writing(sessions) as session:
            session.execute(statement)
    except DatabaseError as error:
        log.warning("job %d: phase %s is not stored: %s", held.job_id, phase.name, error)


def is_over(job: models.Job) -> bool:
    """Return whether a job has ended, including the trial that was running."""
    if job.state != "cancelled" or job.owner is None:
        return job.state in models.ENDED
    return job.finished_at is None or now() - job.finished_at > LATE_TRIAL
