"""One search on this machine: create or join its job, then run it or wait."""

import sys
import time
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from tilewise.backends.base import OnTrialSeen, TrialSeen
from tilewise.errors import TilewiseError
from tilewise.kernels.problem import Problem, ProblemRange
from tilewise.kernels.system.toolchain import identity
from tilewise.search.progress import PHASES, OnPhase, SearchPhase
from tilewise.search.records import TrialRecord, TuneRequest
from tilewise.service.api.documents import phase_json
from tilewise.service.db import models
from tilewise.service.db.base import is_sound
from tilewise.service.db.session import Sessions, writing
from tilewise.service.jobs import queue, rechecks
from tilewise.service.jobs.lease import Lease
from tilewise.service.runs.sql import SqlRunStore
from tilewise.service.workers.job_run import (
    Event,
    JobOutcome,
    RunPhase,
    TrialReached,
    run_job,
    run_or_wait,
)
from tilewise.service.workers.range_run import run_range


@dataclass(frozen=True)
class LocalSearch:
    """A search and its observer.

    `began` is the moment of `time.monotonic` from which a budget in seconds counts.
    """

    sessions: Sessions
    problem: Problem | ProblemRange
    target: str
    on_trial: OnTrialSeen
    on_phase: OnPhase
    began: float | None

    def answer(self, request: TuneRequest, *, again: bool = False) -> None:
        """Ensure that a result of at least this budget is stored.

        With `again` the finalists of a stored result are timed again, with its own budget.
        """
        work = self.problem, self.target, request, identity()
        submit = rechecks.time_again if again else queue.create_or_join
        while True:
            with writing(self.sessions) as session:
                job = submit(session, *work).job
            if job is None:
                sys.stderr.write("tilewise: answered from the store\n")
                return
            if job.trials != request.trials:
                sys.stderr.write(f"tilewise: job {job.id} has {job.trials} trials\n")
            self._finish(job.id, request.seconds)
            is_enough = job.trials >= request.trials and (job.peers or not request.peers)
            if again or is_enough:
                return

    def _finish(self, job_id: int, seconds: float | None) -> None:
        """Run the job here, or report what another process does; raise what stopped it."""
        seen: int | None = None
        began = time.monotonic() if self.began is None else self.began

        def tell_of_others(session: Session, job: models.Job) -> None:
            nonlocal seen
            found = queue.trials_page(session, job_id, after=seen)
            for row in filter(is_sound, found):
                ends = None if row.low is None or row.high is None else (row.low, row.high)
                self.on_trial(_trial_seen(row, row.gflops, ends))
            seen = found[-1].number if found else seen
            has_ended = job.state in models.ENDED
            if not has_ended and seconds is not None and time.monotonic() > began + seconds:
                raise TilewiseError(f"job {job_id}, run by another process, has not ended in time")
            phase = None if has_ended else phase_json(session, job)
            if phase is not None and phase["name"] in PHASES and phase["name"] != "search":
                self.on_phase(SearchPhase(**phase))

        outcome = run_or_wait(self.sessions, job_id, self._run, on_look=tell_of_others)
        if outcome.cause is not None:
            raise outcome.cause
        if outcome.state != "done":
            raise TilewiseError(f"the job {outcome.state}: {outcome.message}")

    def _run(self, held: Lease) -> JobOutcome:
        if isinstance(self.problem, ProblemRange):
            return run_range(self.sessions, held, on_phase=self.on_phase, began=self.began)
        store = SqlRunStore(self.sessions, held)
        return run_job(store, on_event=self._tell, began=self.began)

    def _tell(self, event: Event) -> None:
        if isinstance(event, TrialReached):
            best = None if event.best is None else _seen(event.best)
            self.on_trial(replace(_seen(event.trial), best=best))
        elif isinstance(event, RunPhase):
            self.on_phase(event.phase)


def _seen(trial: TrialRecord) -> TrialSeen:
    found = trial.measurement
    if found is None:
        return TrialSeen(trial.number, trial.state, trial.failure)
    return _trial_seen(trial, found.gflops, found.interval)


def _trial_seen(
    trial: TrialRecord | models.Trial, gflops: float | None, ends: tuple[float, float] | None
) -> TrialSeen:
    interval = ends if ends is not None and ends[0] < ends[1] else None
    return TrialSeen(trial.number, trial.state, trial.failure, gflops, interval)
