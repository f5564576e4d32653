"""A run that writes to the database itself, and waits for it where it is away for a while."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy.orm import Session

from tilewise.schema.base import JobState
from tilewise.search.progress import Phase
from tilewise.search.records import Best, TuneRequest, TuneResult
from tilewise.service.db import models
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.host.machine import MachineInfo
from tilewise.service.jobs import lease, outcome, queue
from tilewise.service.jobs.events import note_phase
from tilewise.service.jobs.heartbeat import Heartbeat
from tilewise.service.jobs.lease import Lease
from tilewise.service.jobs.outcome import Attempt
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.results import integrity
from tilewise.service.results.stored import Work
from tilewise.service.runs.keeper import Order
from tilewise.service.runs.patience import PatientTrials, patiently


class SqlKeeper:
    """A `Keeper` over the database.

    Args:
        sessions: the session factory.
        held: the run's lease.

    Raises:
        NotFoundError, DamagedError: as `queue.get`.
    """

    def __init__(self, sessions: Sessions, held: Lease) -> None:
        self._sessions = sessions
        self._held = held
        self._job = patiently(lambda _: self._read(), f"job {held.job_id}")
        self.trials = PatientTrials(SqlTrialStore(sessions, held.job_id, held), held.job_id)
        self.epoch = held.epoch
        self.helpers = None  # a driver alone finds some, and gives jobs to workers of a cluster
        self.request_id = self._job.request_id or ""

    @property
    def order(self) -> Order:
        """What the run is to do; TamperedError where the row is not what was stored."""
        integrity.check_work(Work.of(self._job))
        return _order(self._job)

    @contextmanager
    def beating(self) -> Iterator[Callable[[], bool]]:
        """Keeps the lease meanwhile."""
        with Heartbeat(self._sessions, self._held) as heartbeat:
            yield heartbeat.should_stop

    def note(self, phase: Phase) -> None:
        """Keep what the run does now."""
        note_phase(self._sessions, self._held, phase)

    def done(
        self, result: TuneResult, best: Best, attempts: Sequence[Attempt], machine: MachineInfo
    ) -> bool:
        """End the job with its results, unless it was taken away at the last moment."""

        def store(session: Session) -> bool:
            row = outcome.store(session, self._held, result, best, attempts, machine)
            return row is not None

        return self._end("done", store)

    def failed(self, message: str) -> bool:
        """End the job without a result."""

        def fail(session: Session) -> bool:
            return lease.end(session, self._held, state="failed", error=message, complete=False)

        return self._end("failed", fail)

    def release(self) -> None:
        """Give the job back to the queue; at once or not at all, since the process is to end."""
        with writing(self._sessions) as session:
            lease.release(session, self._held)

    def _read(self) -> models.Job:
        with reading(self._sessions) as session:
            return queue.get(session, self._held.job_id)

    def _end(self, state: JobState, end: Callable[[Session], bool]) -> bool:
        """End the job; a repetition finds it ended where the answer alone was lost."""

        def step(is_repeated: bool) -> bool:
            with writing(self._sessions) as session:
                if is_repeated and lease.has_left(session, self._held, state):
                    return True
                return end(session)

        return patiently(step, f"job {self._held.job_id}, {state}")


def _order(job: models.Job) -> Order:
    problem, spent = job.problem.canonical, job.elapsed_s
    return Order(job.id, problem, job.target, TuneRequest.of(job), spent)
