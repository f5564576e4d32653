"""Running one claimed job in this process: search, prove, store.

The command line's `tune` and the worker child both come here.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kernels.errors import KernelsError
from kernels.problem import Problem, parse_problem
from kernels.schedule import Schedule
from kernels.target import Target, resolve
from search.errors import SearchError
from search.records import Best, TrialRecord, TuneRequest, TuneResult
from search.store import TrialStore
from service import jobs, lease, outcome
from service.db import models
from service.db.session import Sessions, reading, writing
from service.db.trials import SqlTrialStore
from service.errors import LeaseLostError
from service.heartbeat import Heartbeat
from service.machine import MachineInfo, examine_here
from service.outcome import Attempt

if TYPE_CHECKING:
    from kernels.mlir import Proof

# Named, not imported: both load compilers, which the service must not.
TUNER = "search.tune:tune"
PROVER = "kernels.mlir:prove"
EMITTER = "kernels.mlir:emit_script"

MOST_PROOFS = 3
MOST_TRIED = 16  # of the fastest trials, for one that has a script
_LEAST_SECONDS = 0.001

log = logging.getLogger(__name__)


class Tuner(Protocol):
    """`search.tune.tune`."""

    def __call__(
        self,
        problem: Problem,
        target: Target,
        request: TuneRequest,
        store: TrialStore,
        *,
        on_trial: Callable[[TrialRecord, TrialRecord | None], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> TuneResult:
        """Search for the best schedule within a budget."""
        ...


class Prover(Protocol):
    """`kernels.mlir.prove`."""

    def __call__(self, problem: Problem, schedule: Schedule, *, seed: int) -> "Proof":
        """Write the schedule's script, apply it, run it and time it."""
        ...


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


Event = TrialEnded | ScriptTried


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


def load(path: str) -> Any:
    """The object at `module:name`."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def run_job(
    sessions: Sessions,
    job_id: int,
    owner: str,
    *,
    on_event: Callable[[Event], None] | None = None,
    tuner: Tuner | None = None,
    prover: Prover | None = None,
    machine: MachineInfo | None = None,
) -> JobOutcome:
    """Run a job that `owner` has claimed, from its first trial that is not stored yet.

    A job that is interrupted from outside (Ctrl-C, SIGTERM) goes back to the queue. An
    unexpected exception leaves it claimed: whoever started this process counts the crash.

    Args:
        sessions: the session factory.
        job_id: the job.
        owner: the holder of its lease.
        on_event: told of each trial and each proof.
        tuner: the search; None is `search.tune.tune`.
        prover: the proof of a script; None is `kernels.mlir.prove`.
        machine: this machine; None examines it.
    """
    with reading(sessions) as session:
        job = jobs.get(session, job_id)
    run = _Run(sessions, job, owner, on_event or _ignore)
    try:
        with Heartbeat(sessions, job_id, owner) as heartbeat:
            result = run.search(tuner or load(TUNER), heartbeat.should_stop)
            if result.best is None:
                return run.fail(_nothing_ran(result))
            schedules = _to_prove(run.problem, result, result.best)
            attempts = run.prove(prover or load(PROVER), schedules, heartbeat.should_stop)
        return run.store(result, result.best, attempts, machine or examine_here())
    except LeaseLostError:
        return run.interrupted()
    except (KernelsError, SearchError) as error:
        return run.fail(str(error), error)
    except (KeyboardInterrupt, SystemExit):
        with writing(sessions) as session:
            lease.release(session, job_id, owner)
        raise


def _to_prove(problem: Problem, result: TuneResult, best: Best) -> list[Schedule]:
    """The finalists: the fastest schedule need not give the fastest script.

    Some schedules have no script: a reduction that is split, blocks of parts that differ.
    Where no finalist has one, the last gives way to the fastest trial that does; pruned
    ones count too.
    """
    finalists = [best.schedule, *(schedule for schedule, _ in best.runners_up)][:MOST_PROOFS]
    if any(_has_script(problem, schedule) for schedule in finalists):
        return finalists
    timed = [(t.measurement.time_us, t.schedule) for t in result.trials if t.measurement]
    nearest = [schedule for _, schedule in sorted(timed, key=lambda pair: pair[0])][:MOST_TRIED]
    found = next((schedule for schedule in nearest if _has_script(problem, schedule)), None)
    return finalists if found is None else [*finalists[: MOST_PROOFS - 1], found]


def _has_script(problem: Problem, schedule: Schedule) -> bool:
    """Whether there is a script at all, short of its proof."""
    try:
        load(EMITTER)(problem, schedule)
    except KernelsError:
        return False
    return True


class _Run:
    """The steps of one run, over what they share."""

    def __init__(
        self, sessions: Sessions, job: models.Job, owner: str, on_event: Callable[[Event], None]
    ) -> None:
        self._sessions = sessions
        self._job = job
        self._owner = owner
        self._on_event = on_event
        self.problem = parse_problem(job.problem.canonical)

    def search(self, tune: Tuner, should_stop: Callable[[], bool]) -> TuneResult:
        """Search, storing every trial before it counts."""
        request = _request(self._job)

        def on_trial(trial: TrialRecord, best: TrialRecord | None) -> None:
            self._on_event(TrialEnded(trial, best, request.trials))

        store = SqlTrialStore(self._sessions, self._job.id, self._owner)
        target = resolve(self._job.target)
        return tune(
            self.problem, target, request, store, on_trial=on_trial, should_stop=should_stop
        )

    def prove(
        self, prove: Prover, schedules: Sequence[Schedule], should_stop: Callable[[], bool]
    ) -> list[Attempt]:
        """Put the scripts of the best schedules to the proof."""
        attempts = []
        for schedule in schedules:
            if should_stop():
                break
            attempt = self._attempt(prove, schedule)
            attempts.append(attempt)
            self._on_event(ScriptTried(attempt))
        return attempts

    def _attempt(self, prove: Prover, schedule: Schedule) -> Attempt:
        try:
            return Attempt(schedule, prove(self.problem, schedule, seed=self._job.seed))
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
            row = outcome.store(session, self._job.id, self._owner, result, best, attempts, machine)
        return JobOutcome("done") if row is not None else self.interrupted()

    def fail(self, message: str, cause: Exception | None = None) -> JobOutcome:
        """End the job without a result."""
        with writing(self._sessions) as session:
            ended = lease.end(
                session, self._job.id, self._owner, state="failed", error=message, complete=False
            )
        return JobOutcome("failed", message, cause) if ended else self.interrupted()

    def interrupted(self) -> JobOutcome:
        """Leave the job as others have made it."""
        return JobOutcome("interrupted", f"job {self._job.id} was cancelled or taken over")


def _request(job: models.Job) -> TuneRequest:
    """What the job asks for, less the seconds that earlier runs have spent."""
    request = TuneRequest(
        trials=job.trials,
        seconds=job.seconds,
        seed=job.seed,
        sampler=job.sampler,
        peers=job.peers,
    )
    if request.seconds is None:
        return request
    return replace(request, seconds=max(request.seconds - job.elapsed_s, _LEAST_SECONDS))


def _nothing_ran(result: TuneResult) -> str:
    failures = [trial for trial in result.trials if trial.state == "failed"]
    if not failures:
        return "no candidate was tried"
    first = failures[0]
    return (
        f"none of {len(result.trials)} candidates ran; the first: {first.failure}: {first.message}"
    )


def _ignore(_event: Event) -> None: ...
