"""What a job has to tell since it was last asked: trials, the present phase, its end."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tilewise.search.progress import SearchPhase
from tilewise.service.db import models
from tilewise.service.db.base import now
from tilewise.service.db.session import Sessions, writing
from tilewise.service.errors import DatabaseError
from tilewise.service.jobs import queue
from tilewise.service.jobs.lease import Lease

LATE_TRIAL = timedelta(seconds=2)
"""A cancelled run may store the trial that was under way for so long."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobEvent:
    """New trials and the state of a job.

    `is_full`: there may be more trials already. `is_over`: there will be none after these.
    """

    job: models.Job
    trials: Sequence[models.Trial]
    is_full: bool
    is_over: bool


def news(session: Session, job_id: int, after: int, limit: int) -> JobEvent:
    """Return the trials after number `after`, and the state of the job; raise as `queue.get`."""
    # Read first: what ends between the two queries has all of its trials in the second.
    job = queue.get(session, job_id)
    trials = queue.trials_page(session, job_id, after=after, limit=limit)
    is_full = len(trials) == limit
    return JobEvent(job, trials, is_full, not is_full and _is_over(job))


def last_number(session: Session, job_id: int) -> int:
    """The number of a job's last trial; -1 where it has none."""
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


def _is_over(job: models.Job) -> bool:
    if job.state != "cancelled" or job.owner is None:
        return job.state in models.ENDED
    return job.finished_at is None or now() - job.finished_at > LATE_TRIAL
