"""Running one claimed job in this process: search, prove, store.

The command line's `tune` and the worker child both come here.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from kernels.errors import KernelsError
from kernels.problem import Problem, parse_problem
from kernels.schedule import Schedule
from kernels.target import Target, resolve
from search.errors import SearchError
from search.progress import Phase
from search.records import Best, TrialRecord, TuneRequest, TuneResult
from service.db import models
from service.db.session import Sessions, reading, writing
from service.errors import LeaseLostError, TamperedError
from service.host.machine import MachineInfo, examine_here
from service.jobs import lease, outcome, queue
from service.jobs.events import note_phase
from service.jobs.heartbeat import Heartbeat
from service.jobs.lease import Lease
from service.jobs.outcome import Attempt
from service.jobs.trial_store import SqlTrialStore
from service.results import integrity
from service.results.stored import Work
from service.workers.entry_points import PROVER, TUNER, Prover, Tuner, load
from service.workers.proving import Proofs

_LEAST_SECONDS = 0.001
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrialEnded:
    """A trial was stored; `best` is the fastest so far."""

    trial: TrialRecord
    best: TrialRecord | None
    asked: int


@dataclass(frozen=True)
class ScriptTried:
    """A script was put to the proof."""

    attempt: Attempt


@dataclass(frozen=True)
class PhaseReached:
    """What the run does now, and how much of it is done; the search tells of itself by trials."""

    phase: Phase


Event = TrialEnded | ScriptTried | PhaseReached


@dataclass(frozen=True)
class JobOutcome:
    """How a run of a job ended.

    Attributes:
        state: done, failed, or interrupted (cancelled, or taken over by another process).
        message: why, unless done.
        cause: the error behind a failure, when there is one.
    """

    state: Literal["done", "failed", "interrupted"]
    message: str = ""
    cause: Exception | None = None


def run_job(
    sessions: Sessions,
    held: Lease,
    *,
    on_event: Callable[[Event], None] | None = None,
    tuner: Tuner | None = None,
    prover: Prover | None = None,
    machine: MachineInfo | None = None,
    began: float | None = None,
) -> JobOutcome:
    """Run a job that was claimed, from its first trial that is not stored yet.

    A job that is interrupted from outside (Ctrl-C, SIGTERM) goes back to the queue. An
    unexpected exception leaves it claimed: whoever started this process counts the crash.

    Args:
        sessions: the session factory.
        held: the job's lease, which `service.jobs.lease.claim` gave.
        on_event: told of each trial, each proof, and of the phases after the search.
        tuner: the search; None is `search.engine.tune.tune`.
        prover: the proof of a script; None is `kernels.mlir.proof.prove`.
        machine: this machine; None examines it.
        began: the moment of `time.monotonic` from which the job's seconds count; None is now.
    """
    began = time.monotonic() if began is None else began
    with reading(sessions) as session:
        job = queue.get(session, held.job_id)
    run = _Run(sessions, job, held, on_event or _ignore)
    try:
        integrity.check_work(Work.of(job))
        with Heartbeat(sessions, held) as heartbeat:
            attempt = partial(run.attempt, prover or load(PROVER))
            proofs = Proofs(
                run.problem,
                run.target,
                attempt,
                heartbeat.should_stop,
                run.has_seconds,
                run.on_phase,
            )
            result = run.search(tuner or load(TUNER), heartbeat.should_stop, proofs.prove, began)
            if result.best is None:
                return run.fail(_nothing_ran(result))
            proofs.complete(result, result.best)
        return run.store(result, result.best, proofs.attempts, machine or examine_here())
    except LeaseLostError:
        return run.interrupted()
    except (KernelsError, SearchError, TamperedError) as error:
        return run.fail(str(error), error)
    except (KeyboardInterrupt, SystemExit):
        with writing(sessions) as session:
            lease.release(session, held)
        raise


class _Run:
    """The steps of one run, over what they share."""

    def __init__(
        self, sessions: Sessions, job: models.Job, held: Lease, on_event: Callable[[Event], None]
    ) -> None:
        self._sessions = sessions
        self._job = job
        self._held = held
        self._on_event = on_event

    @cached_property
    def problem(self) -> Problem:
        """What the job is for; a ProblemError where the database does not say."""
        return parse_problem(self._job.problem.canonical)

    @cached_property
    def target(self) -> Target:
        """Where the job's schedules run."""
        return resolve(self._job.target)

    def search(
        self,
        tune: Tuner,
        should_stop: Callable[[], bool],
        before_finals: Callable[[list[TrialRecord], float | None], None],
        began: float,
    ) -> TuneResult:
        """Search, storing every trial before it counts."""
        request = _request(self._job)

        def on_trial(trial: TrialRecord, best: TrialRecord | None) -> None:
            self._on_event(TrialEnded(trial, best, request.trials))

        store = SqlTrialStore(self._sessions, self._job.id, self._held)
        if request.seconds is not None:
            left = request.seconds - self._job.elapsed_s - (time.monotonic() - began)
            request = replace(request, seconds=max(left, _LEAST_SECONDS))
        note_phase(self._sessions, self._held, Phase("search", 0, request.trials))
        return tune(
            self.problem,
            self.target,
            request,
            store,
            on_trial=on_trial,
            should_stop=should_stop,
            before_finals=before_finals,
            on_phase=self.on_phase,
        )

    def on_phase(self, phase: Phase) -> None:
        """Tell of what the run does now, and store it."""
        self._on_event(PhaseReached(phase))
        note_phase(self._sessions, self._held, phase)

    @property
    def has_seconds(self) -> bool:
        """Whether the job is bound in time."""
        return self._job.seconds is not None

    def attempt(self, prove: Prover, schedule: Schedule, seconds: float) -> Attempt:
        """Put one script to the proof, and tell of it."""
        attempt = self._attempt(prove, schedule, seconds)
        self._on_event(ScriptTried(attempt))
        return attempt

    def _attempt(self, prove: Prover, schedule: Schedule, seconds: float) -> Attempt:
        try:
            proof = prove(self.problem, schedule, seed=self._job.seed, seconds=seconds)
            return Attempt(schedule, proof)
        except KernelsError as error:
            return Attempt(schedule, None, str(error))
        except Exception as error:
            # What was searched for minutes must not be lost to a fault in the proof; the
            # fault is stored, and the script that it concerns is never served.
            log.exception("job %d: no proof of schedule %s", self._job.id, schedule.hash)
            return Attempt(schedule, None, f"{type(error).__name__}: {error}")

    def store(
        self, result: TuneResult, best: Best, attempts: Sequence[Attempt], machine: MachineInfo
    ) -> JobOutcome:
        """End the job with its results, unless it was taken away at the last moment."""
        with writing(self._sessions) as session:
            row = outcome.store(session, self._held, result, best, attempts, machine)
        return JobOutcome("done") if row is not None else self.interrupted()

    def fail(self, message: str, cause: Exception | None = None) -> JobOutcome:
        """End the job without a result."""
        with writing(self._sessions) as session:
            ended = lease.end(session, self._held, state="failed", error=message, complete=False)
        return JobOutcome("failed", message, cause) if ended else self.interrupted()

    def interrupted(self) -> JobOutcome:
        """Leave the job as others have made it."""
        return JobOutcome("interrupted", f"job {self._job.id} was cancelled or taken over")


def _request(job: models.Job) -> TuneRequest:
    return TuneRequest(
        trials=job.trials,
        seconds=job.seconds,
        seed=job.seed,
        sampler=job.sampler,
        peers=job.peers,
        cache=job.cache,
    )


def _nothing_ran(result: TuneResult) -> str:
    failures = [trial for trial in result.trials if trial.state == "failed"]
    if not failures:
        return "no candidate was tried"
    first = failures[0]
    return (
        f"none of {len(result.trials)} candidates ran; the first: {first.failure}: {first.message}"
    )


def _ignore(_event: Event) -> None: ...
