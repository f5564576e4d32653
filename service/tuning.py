"""Running one claimed job in this process: search, prove, store.

The command line's `tune` and the worker child both come here.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
PROOF_LIMIT_S = 60.0
LEAST_PROOF_S = 10.0  # for the first one, however little is left: without it there is no script
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
        before_finals: Callable[[list[TrialRecord], float | None], None] | None = None,
    ) -> TuneResult:
        """Search for the best schedule within a budget."""
        ...


class Prover(Protocol):
    """`kernels.mlir.prove`."""

    def __call__(
        self, problem: Problem, schedule: Schedule, *, seed: int, seconds: float
    ) -> "Proof":
        """Write the schedule's script, apply it, run it and time it, within so many seconds."""
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
    began: float | None = None,
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
        began: the moment of `time.monotonic` from which the job's seconds count; None is now.
    """
    began = time.monotonic() if began is None else began
    with reading(sessions) as session:
        job = jobs.get(session, job_id)
    run = _Run(sessions, job, owner, on_event or _ignore)
    try:
        with Heartbeat(sessions, job_id, owner) as heartbeat:
            proofs = Proofs(run, prover or load(PROVER), heartbeat.should_stop)
            result = run.search(tuner or load(TUNER), heartbeat.should_stop, proofs.prove, began)
            if result.best is None:
                return run.fail(_nothing_ran(result))
            proofs.complete(result, result.best)
        return run.store(result, result.best, proofs.attempts, machine or examine_here())
    except LeaseLostError:
        return run.interrupted()
    except (KernelsError, SearchError) as error:
        return run.fail(str(error), error)
    except (KeyboardInterrupt, SystemExit):
        with writing(sessions) as session:
            lease.release(session, job_id, owner)
        raise


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

        store = SqlTrialStore(self._sessions, self._job.id, self._owner)
        target = resolve(self._job.target)
        if request.seconds is not None:
            left = request.seconds - self._job.elapsed_s - (time.monotonic() - began)
            request = replace(request, seconds=max(left, _LEAST_SECONDS))
        return tune(
            self.problem,
            target,
            request,
            store,
            on_trial=on_trial,
            should_stop=should_stop,
            before_finals=before_finals,
        )

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


@dataclass
class Proofs:
    """The proofs of one run: of the fastest schedules, between its search and its finals."""

    run: _Run
    prover: Prover
    should_stop: Callable[[], bool]
    attempts: list[Attempt] = field(default_factory=list)

    def prove(self, ranking: Sequence[TrialRecord], until: float | None) -> None:
        """Put the scripts of the fastest trials to the proof, as many as end in time.

        The first is proven however late it is; what it took says whether there is time for
        another.
        """
        timed = [trial.schedule for trial in ranking if trial.state == "timed"]
        schedules = with_a_script(self.run.problem, timed[:MOST_PROOFS], ranking)
        longest = 0.0
        for schedule in schedules:
            begin = time.monotonic()
            left = PROOF_LIMIT_S if until is None else until - begin
            if self.should_stop() or (self.attempts and left < longest):
                return
            limit = min(PROOF_LIMIT_S, max(LEAST_PROOF_S, left))
            self.attempts.append(self.run.attempt(self.prover, schedule, limit))
            longest = max(longest, time.monotonic() - begin)

    def complete(self, result: TuneResult, best: Best) -> None:
        """See to it that the winner of the finals was put to the proof, where time is no matter."""
        tried = [attempt.schedule for attempt in self.attempts]
        finalists = [best.schedule, *(schedule for schedule, _ in best.runners_up)][:MOST_PROOFS]
        if tried:
            missing = [] if self.run.has_seconds or best.schedule in tried else [best.schedule]
        else:
            missing = with_a_script(self.run.problem, finalists, result.trials)
        for schedule in missing:
            if self.should_stop():
                return
            self.attempts.append(self.run.attempt(self.prover, schedule, PROOF_LIMIT_S))


def with_a_script(
    problem: Problem, fastest: Sequence[Schedule], trials: Sequence[TrialRecord]
) -> list[Schedule]:
    """The fastest schedules, which need not give the fastest script.

    Some schedules have no script: a reduction that is split, blocks of parts that differ.
    Where none of the fastest has one, the last gives way to the fastest trial that does;
    pruned ones count too.
    """
    if any(_has_script(problem, schedule) for schedule in fastest):
        return list(fastest)
    timed = [(t.measurement.time_us, t.schedule) for t in trials if t.measurement]
    nearest = [schedule for _, schedule in sorted(timed, key=lambda pair: pair[0])][:MOST_TRIED]
    found = next((schedule for schedule in nearest if _has_script(problem, schedule)), None)
    return list(fastest) if found is None else [*fastest[: MOST_PROOFS - 1], found]


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
