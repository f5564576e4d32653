"""The interface of a run to its job in the database.

A run outlives its database's absence: what it reads and writes is tried again, for a while. Only
whole transactions are repeated. One whose answer was lost may have been committed, so each learns
whether it is a repetition, and takes what it finds of its own for its success.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from sqlalchemy.orm import Session

from tilewise.schema.base import JobState, Json
from tilewise.search.progress import SearchPhase
from tilewise.search.ranges.result import RangeResult
from tilewise.search.records import TrialRecord, TuneRequest, TuneResult, Winner
from tilewise.service.db import models
from tilewise.service.db.rows import machine_row
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.errors import PASSING
from tilewise.service.host.machine import MachineInfo
from tilewise.service.jobs import lease, outcome, plans, queue
from tilewise.service.jobs.events import note_phase
from tilewise.service.jobs.heartbeat import Heartbeat
from tilewise.service.jobs.lease import Lease
from tilewise.service.jobs.outcome import Attempt
from tilewise.service.jobs.plans import Made, PlanAssignment, PlanPhase
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.results import integrity, ranges
from tilewise.service.results.stored import ResultKey

PATIENCE_S = 90.0
"""For how long a run waits for its database, which may be restarted meanwhile."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
LEAST_SECONDS = 0.001  # of a run

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


def patiently(step: Callable[[bool], Answer], what: str, patience_s: float | None = None) -> Answer:
    """Return what the transaction `step` returns, repeating it while the database is away.

    `step` receives whether it is a repetition. `what` is for the log: `job 3, trial 5`. Raises
    DatabaseError if it does not pass within `patience_s`.
    """
    wait_s = PATIENCE_S if patience_s is None else patience_s
    end, tries = time.monotonic() + wait_s, 0
    while True:
        try:
            answer = step(tries > 0)
        except PASSING as error:
            if time.monotonic() >= end:
                raise
            if not tries:
                log.warning("%s: %s; trying again for %.0f s", what, error, wait_s)
        else:
            if tries:
                log.warning("%s: done, at try %d", what, tries + 1)
            return answer
        time.sleep(min(_pause_s(tries), max(0.0, end - time.monotonic())))
        tries += 1


def _pause_s(tries: int) -> float:
    """A pause that doubles with each try, of which chance takes up to half.

    Without chance, all runs that lost one database would come back at one moment.
    """
    longest = min(FIRST_PAUSE_S * 2.0 ** min(tries, 10), LONGEST_PAUSE_S)
    return longest * random.uniform(0.5, 1.0)


Given = ParamSpec("Given")


class PatientTrials:
    """A `tilewise.search.store.TrialStore` that retries while its database is unavailable."""

    def __init__(self, store: SqlTrialStore, job_id: int) -> None:
        def patient(read: Callable[Given, Answer]) -> Callable[Given, Answer]:
            def waited(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
                return patiently(lambda _: read(*args, **kwargs), f"job {job_id}")

            return waited

        self._store = store
        self._job_id = job_id
        self.trials, self.known_failures = patient(store.trials), patient(store.known_failures)
        self.earlier_speed_factors, self.earlier = (
            patient(store.earlier_speed_factors),
            patient(store.earlier),
        )
        self.solved = patient(store.solved)

    def add(self, trial: TrialRecord) -> None:
        """Store one finished trial, once the database is available."""

        def step(is_repeated: bool) -> None:
            keep = self._store.ensure if is_repeated else self._store.add
            keep(trial)

        patiently(step, f"job {self._job_id}, trial {trial.number}")

    def correct(self, trials: Sequence[TrialRecord]) -> None:
        """Replace the speeds and speed factors of stored trials, once the database can."""
        patiently(lambda _: self._store.correct(trials), f"job {self._job_id}, speeds of trials")


@dataclass(frozen=True)
class RunAssignment:
    """What a run is to do; `elapsed_s` are seconds of the job's earlier runs."""

    job_id: int
    problem: str
    target: str
    request: TuneRequest
    elapsed_s: float

    def seconds_left(self, began: float) -> float | None:
        """Return the seconds left of a run that began at `begin`; None without limit."""
        if self.request.seconds is None:
            return None
        left = self.request.seconds - self.elapsed_s - (time.monotonic() - began)
        return max(left, LEAST_SECONDS)


def transacted(
    sessions: Sessions,
    mode: Callable[[Sessions], AbstractContextManager[Session]],
    do: Callable[[Session], Answer],
    name: str,
) -> Answer:
    """Return what a transaction returns, repeating it while the database is away."""

    def step(_is_repeated: bool) -> Answer:
        with mode(sessions) as session:
            return do(session)

    return patiently(step, name)


class SqlRun:
    """A run of a job in the database, whose lease every write carries.

    `is_over` says whether a job that this one is part of has stopped.
    """

    def __init__(
        self, sessions: Sessions, held: Lease, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self._sessions = sessions
        self._held = held
        self._is_over = is_over

    @contextmanager
    def beating(self) -> Iterator[Callable[[], bool]]:
        """Renew the lease meanwhile; yield a function that says whether to stop."""
        with Heartbeat(self._sessions, self._held) as heartbeat:
            yield lambda: heartbeat.should_stop() or self._is_over()

    def progressed(self) -> None:
        """Forget earlier crashes of the job, since a part of it is done."""
        beat = partial(lease.beat, held=self._held, has_trial=True)
        transacted(self._sessions, writing, beat, self._held.name)

    def failed(self, message: str) -> bool:
        """End the job without a result."""
        ended = partial(lease.end, held=self._held, state="failed", error=message)
        return self._end("failed", ended)

    def release(self) -> None:
        """Return the job to the queue if the database is there; otherwise its lease expires."""
        with suppress(*PASSING), writing(self._sessions) as session:
            lease.release(session, self._held)

    def _end(self, state: JobState, end: Callable[[Session], bool]) -> bool:
        """End the job; a repetition finds it ended where the answer alone was lost.

        A part goes back to the queue with the job that it is part of: others may have joined it.
        """
        if self._is_over():
            self.release()
            return False

        def step(is_repeated: bool) -> bool:
            with writing(self._sessions) as session:
                if is_repeated and lease.has_left(session, self._held, state):
                    return True
                return end(session)

        return patiently(step, f"{self._held.name}, {state}")


class SqlPlanStore(SqlRun):
    """Store one run of a plan job in the database."""

    def assignment(self) -> tuple[PlanAssignment, bytes]:
        """Return what the plan is made from, and its module; raise DamagedError."""

        def read(session: Session) -> tuple[PlanAssignment, bytes]:
            return plans.read_assignment(session, plans.of_job(session, self._held.job_id).id)

        return transacted(self._sessions, reading, read, self._held.name)

    def note(self, phase: PlanPhase, plan: Json | None) -> None:
        """Store the run's current phase, and the plan once it is chosen; raise LeaseLostError."""
        plans.note(self._sessions, self._held, phase, plan)

    def done(self, made: Made) -> bool:
        """End the job with its plan, unless it was cancelled or taken over."""
        return self._end("done", lambda session: plans.done(session, self._held, made))


class SqlRunStore(SqlRun):
    """Store one run of a tuning job in the database.

    Raises as `queue.get`.
    """

    def __init__(
        self, sessions: Sessions, held: Lease, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(sessions, held, is_over)
        self._job = transacted(
            sessions, reading, lambda session: queue.get(session, held.job_id), held.name
        )
        self.trials = PatientTrials(SqlTrialStore(sessions, held.job_id, held), held.job_id)
        self.epoch = held.epoch
        self.helpers = None  # a driver alone finds some, and gives jobs to workers of a cluster
        self.request_id = self._job.request_id or ""
        self.toolchain = self._job.toolchain.identity

    @property
    def assignment(self) -> RunAssignment:
        """What the run is to do; TamperedError where the row is not what was stored."""
        job = self._job
        integrity.check_work(ResultKey.of(job))
        problem, request = job.problem.canonical, TuneRequest.of(job)
        return RunAssignment(job.id, problem, job.target, request, job.elapsed_s)

    def note(self, phase: SearchPhase) -> None:
        """Store the current phase of the run."""
        note_phase(self._sessions, self._held, phase)

    def done(
        self, result: TuneResult, best: Winner, attempts: Sequence[Attempt], machine: MachineInfo
    ) -> bool:
        """End the job with its results, unless it was cancelled or taken over."""
        given = self._held, result, best, attempts, machine
        return self._end("done", lambda session: outcome.store(session, *given) is not None)

    def done_with_range(self, result: RangeResult, machine: MachineInfo) -> bool:
        """End the job of a range with its result, unless it was cancelled or taken over."""

        def store(session: Session) -> bool:
            if not lease.end(session, self._held, state="done"):
                return False
            used = machine_row(session, machine)
            session.flush()
            job = session.get_one(models.Job, self._held.job_id)
            ranges.store_range(session, job, result, used.id)
            return True

        return self._end("done", store)
