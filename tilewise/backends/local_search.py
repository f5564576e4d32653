"""One search on this machine: its job made or joined, and run or waited for."""

import sys
import time
from dataclasses import dataclass

from kernels.problem import Problem
from kernels.system.toolchain import identity
from search.progress import OnPhase, Phase
from search.records import TuneRequest
from service.api.documents import trials_json
from service.db import models
from service.db.session import Sessions, reading, writing
from service.host.process_identity import me
from service.jobs import lease, queue
from service.workers.job_run import Event, JobOutcome, PhaseReached, TrialEnded, run_job
from tilewise.backends.base import Report
from tilewise.errors import TilewiseError

POLL_S = 0.5


@dataclass(frozen=True)
class LocalSearch:
    """What is searched for, and who watches.

    Attributes:
        sessions: of this machine's database.
        target: canonical.
        report: told of finished trials.
        on_phase: told of what comes after them.
        began: the moment of `time.monotonic` from which a budget in seconds counts.
    """

    sessions: Sessions
    problem: Problem
    target: str
    report: Report
    on_phase: OnPhase
    began: float | None

    def answer(self, request: TuneRequest) -> None:
        """See to it that a result of at least this budget is stored."""
        budget = 0
        while budget < request.trials:
            with writing(self.sessions) as session:
                made = queue.create_or_join(session, self.problem, self.target, request, identity())
                job = made.job
            if job is None:
                sys.stderr.write("tilewise: answered from the store\n")
                return
            budget = job.trials
            if budget != request.trials:
                sys.stderr.write(f"tilewise: joined job {job.id}, of {budget} trials\n")
            self._finish(job.id)

    def _finish(self, job_id: int) -> None:
        """Run the job here, or wait while another process runs it."""
        while True:
            with writing(self.sessions) as session:
                held = lease.claim_one(session, job_id, me())
            if held is not None:
                ended = run_job(self.sessions, held, on_event=self._tell, began=self.began)
                _require_done(ended)
                return
            if self._has_ended(job_id):
                return
            time.sleep(POLL_S)

    def _has_ended(self, job_id: int) -> bool:
        """Whether another process has ended a job; tells how far it is, if not."""
        with reading(self.sessions) as session:
            job = queue.get(session, job_id)
            if job.state in queue.ENDED:
                _require_done(_outcome(job))
                return True
            done = sum(v for k, v in trials_json(session, job).items() if k != "asked")
            best = queue.best_trial(session, job_id)
            self.report(done, best.gflops if best else None)
            if done >= job.trials:
                self.on_phase(Phase("proof and finals", 0, 0))
        return False

    def _tell(self, event: Event) -> None:
        if isinstance(event, TrialEnded):
            best = event.best.measurement if event.best else None
            self.report(event.trial.number + 1, best.gflops if best else None)
        elif isinstance(event, PhaseReached):
            self.on_phase(event.phase)


def _outcome(job: models.Job) -> JobOutcome:
    message = job.error or ""
    if job.state == "done":
        return JobOutcome("done", message)
    return JobOutcome("failed" if job.state == "failed" else "interrupted", message)


def _require_done(outcome: JobOutcome) -> None:
    """Raise what stopped a job, as the error that the command line knows."""
    if outcome.cause is not None:
        raise outcome.cause
    if outcome.state != "done":
        raise TilewiseError(f"the job {outcome.state}: {outcome.message}")
