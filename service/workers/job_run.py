"""Run one claimed job in this process: search, prove, store.

The command line's `tune` and the worker child both come here.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from sqlalchemy.orm import Session

from tilewise.kernels.errors import KernelsError, LoweringError, UnsupportedError
from tilewise.kernels.mlir.tuning_spec.config import AnySchedule
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import Target, resolve
from tilewise.search.errors import SearchError
from tilewise.search.progress import SearchPhase
from tilewise.search.records import TrialRecord, TuneResult
from tilewise.service.db import models
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.errors import LeaseLostError, TamperedError
from tilewise.service.host.machine import MachineInfo, examine_here
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.lease import Lease
from tilewise.service.jobs.outcome import Attempt
from tilewise.service.runs.process import load
from tilewise.service.runs.sql import RunAssignment, SqlRunStore, transacted
from tilewise.service.workers.entry_points import PROVER, TUNER, Prover, Tuner
from tilewise.service.workers.proving import Proofs

if TYPE_CHECKING:
    from tilewise.service.runs.http import HttpRunStore

RunStore: TypeAlias = "SqlRunStore | HttpRunStore"
log = logging.getLogger(__name__)


Ending = Literal["done", "failed", "interrupted"]
POLL_S = 0.5


@dataclass(frozen=True)
class TrialReached:
    """A trial was stored; `best` is the fastest so far."""

    trial: TrialRecord
    best: TrialRecord | None
    requested: int


@dataclass(frozen=True)
class ScriptTried:
    """The proof of a script was attempted."""

    attempt: Attempt


@dataclass(frozen=True)
class RunPhase:
    """The phase of a run and its progress, except for searches, which report trials."""

    phase: SearchPhase


Event = TrialReached | ScriptTried | RunPhase


@dataclass(frozen=True)
class JobOutcome:
    """How a run of a job ended: done, failed, or interrupted (cancelled, or taken over).

    `cause` is the error behind a failure, if there is one.
    """

    state: Ending
    message: str = ""
    cause: Exception | None = None


INTERRUPTED = JobOutcome("interrupted", "it was cancelled or taken over")


def run_job(
    store: RunStore,
    *,
    on_event: Callable[[Event], None] | None = None,
    tuner: Tuner | None = None,
    prover: Prover | None = None,
    machine: MachineInfo | None = None,
    began: float | None = None,
) -> JobOutcome:
    """Run a job, wherever it is stored, from its first trial that is not stored yet.

    A job that is interrupted (Ctrl-C, SIGTERM) goes back to the queue. An unexpected exception
    leaves it claimed: the parent process counts the crash.

    `on_event` gets each trial, each proof and later phases. `began` is the moment of
    `time.monotonic` from which the job's seconds count, by default now.
    """
    began = time.monotonic() if began is None else began
    run = _Run(store, on_event or (lambda _event: None))

    def end() -> JobOutcome:
        with store.beating() as should_stop:
            attempt = partial(run.attempt, prover or load(PROVER))
            proofs = Proofs(
                run.problem, run.target, attempt, should_stop, run.has_seconds, run.on_phase
            )
            result = run.search(tuner or load(TUNER), should_stop, proofs.prove, began)
            if result.best is None:
                return _failed(store, _nothing_ran(result))
            proofs.complete(result, result.best)
        given = result, result.best, proofs.attempts, machine or examine_here()
        return JobOutcome("done") if store.done(*given) else INTERRUPTED

    return concluded(store, end)


def run_or_wait(
    sessions: Sessions,
    job_id: int,
    run: Callable[[Lease], JobOutcome],
    *,
    on_look: Callable[[Session, models.Job], None] = lambda _session, _job: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> JobOutcome:
    """Run a job by `run`, or wait while another process runs it, also one that takes it over.

    `on_look` gets the job whenever it is read meanwhile.
    """

    def look(session: Session) -> JobOutcome | None:
        job = queue.get(session, job_id)
        on_look(session, job)
        if job.state not in models.ENDED:
            return None
        states: dict[str, Ending] = {"done": "done", "failed": "failed"}
        state = states.get(job.state, "interrupted")
        return JobOutcome(state, job.error or ("" if state == "done" else INTERRUPTED.message))

    name = f"job {job_id}"
    while not should_stop():
        held = transacted(
            sessions, writing, lambda session: lease.claim_one(session, job_id, me()), name
        )
        if held is not None and (ended := run(held)).state != "interrupted":
            return ended
        if (found := transacted(sessions, reading, look, name)) is not None:
            return found
        time.sleep(POLL_S)
    return INTERRUPTED


def concluded(store: RunStore, run: Callable[[], JobOutcome]) -> JobOutcome:
    """Return how `run` ends, whatever it raises, and store a failure; see `run_job`."""
    try:
        return run()
    except LeaseLostError:
        return INTERRUPTED
    except (KernelsError, SearchError, TamperedError) as error:
        return _failed(store, str(error), error)
    except (KeyboardInterrupt, SystemExit):
        store.release()
        raise


def _failed(store: RunStore, message: str, cause: Exception | None = None) -> JobOutcome:
    """End a job without a result."""
    return JobOutcome("failed", message, cause) if store.failed(message) else INTERRUPTED


class _Run:
    """The steps of one run, over what they share."""

    def __init__(self, store: RunStore, on_event: Callable[[Event], None]) -> None:
        self._store = store
        self._on_event = on_event

    @cached_property
    def _assignment(self) -> RunAssignment:
        return self._store.assignment

    @cached_property
    def problem(self) -> Problem:
        """What the job is for; a ProblemError where the database does not say."""
        return parse_problem(self._assignment.problem)

    @cached_property
    def target(self) -> Target:
        """Where the job's schedules run."""
        return resolve(self._assignment.target)

    def search(
        self,
        tune: Tuner,
        should_stop: Callable[[], bool],
        before_final: Callable[[list[TrialRecord], float | None], None],
        began: float,
    ) -> TuneResult:
        """Search, storing every trial before it counts."""
        request = replace(self._assignment.request, seconds=self._assignment.seconds_left(began))
        trials = request.trials

        def on_trial(trial: TrialRecord, best: TrialRecord | None) -> None:
            self._on_event(TrialReached(trial, best, trials))

        helpers = {"helpers": self._store.helpers} if self._store.helpers else {}
        self._store.note(SearchPhase("search", 0, trials))
        return tune(
            self.problem,
            self.target,
            request,
            self._store.trials,
            on_trial=on_trial,
            should_stop=should_stop,
            before_final=before_final,
            on_phase=self.on_phase,
            **helpers,
        )

    def on_phase(self, phase: SearchPhase) -> None:
        """Report and store the current phase of the run."""
        self._on_event(RunPhase(phase))
        self._store.note(phase)

    @property
    def has_seconds(self) -> bool:
        """Whether the job is bound in time."""
        return self._assignment.request.seconds is not None

    def attempt(self, prove: Prover, schedule: AnySchedule, seconds: float) -> Attempt:
        """Prove one script, and report the attempt."""
        attempt = self._attempt(prove, schedule, seconds)
        self._on_event(ScriptTried(attempt))
        return attempt

    def _attempt(self, prove: Prover, schedule: AnySchedule, seconds: float) -> Attempt:
        try:
            proof = prove(
                self.problem,
                schedule,
                seed=self._assignment.request.seed,
                seconds=seconds,
                threads=self.target.threads,
            )
            return Attempt(schedule, proof)
        except (UnsupportedError, LoweringError) as error:  # before there is a script
            return Attempt(schedule, None, str(error), "unsupported")
        except KernelsError as error:
            return Attempt(schedule, None, str(error))
        except Exception as error:
            # What was searched for minutes must not be lost to a fault in the proof; the
            # fault is stored, and the script that it concerns is never served.
            log.exception("job %d: no proof of schedule %s", self._assignment.job_id, schedule.hash)
            return Attempt(schedule, None, f"{type(error).__name__}: {error}")


def _nothing_ran(result: TuneResult) -> str:
    if result.finalist_failure:
        return (
            f"none of {result.count('timed')} timed candidates ran again in the final benchmark; "
            f"the last: {result.finalist_failure}"
        )
    failures = [trial for trial in result.trials if trial.state == "failed"]
    if not failures:
        return "no candidate was tried"
    first = failures[0]
    return (
        f"none of {len(result.trials)} candidates ran; the first: {first.failure}: {first.message}"
    )
