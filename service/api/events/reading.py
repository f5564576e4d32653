"""News of jobs from the database, in the lane of reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy.orm import Session

from tilewise.service.api.events.encoding import Told, read_news
from tilewise.service.api.lanes import Lane, SharedReads
from tilewise.service.db.checked import reading
from tilewise.service.db.session import Sessions
from tilewise.service.errors import DamagedError, NotFoundError, ServiceError

Read = Callable[[Session, int, int | None], Told]


@dataclass(frozen=True)
class NewsReader:
    """Reads what jobs have to tell.

    Attributes:
        lane: where it blocks.
        sessions: of the database.
        read: what one has to tell after a number; None tells where its numbers end.
    """

    lane: Lane
    sessions: Sessions
    read: Read = read_news
    _shared: SharedReads = field(default_factory=SharedReads, init=False)

    async def one(self, job_id: int, after: int) -> Told:
        """What a job has to tell after the trial of number `after`."""
        return await self._shared.get(
            (job_id, after), partial(self.lane.run, partial(self._one, job_id, after))
        )

    async def every(self, jobs: Mapping[int, int | None]) -> dict[int, Told | ServiceError]:
        """What each job has to tell after a trial; None tells where its trials end."""
        return await self.lane.run(partial(self._every, dict(jobs)))

    def _one(self, job_id: int, after: int) -> Told:
        with reading(self.sessions) as session:
            return self.read(session, job_id, after)

    def _every(self, jobs: Mapping[int, int | None]) -> dict[int, Told | ServiceError]:
        with reading(self.sessions) as session:
            return {job: _told(self.read, session, job, after) for job, after in jobs.items()}


def _told(read: Read, session: Session, job_id: int, after: int | None) -> Told | ServiceError:
    """What a job has to tell; a row that is gone or damaged ends its own streams alone."""
    try:
        return read(session, job_id, after)
    except (NotFoundError, DamagedError) as error:
        return error
