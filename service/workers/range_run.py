"""Run one claimed job of a range: search its samples, time the finalists, store variants.

Each sample has a job of its own, which other processes may run; a stored result answers without.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

from sqlalchemy.orm import Session

from tilewise.kernels.problem import Problem, parse_range
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import resolve
from tilewise.search.errors import RangeError
from tilewise.search.progress import OnPhase, SearchPhase, ignore_phase
from tilewise.search.ranges.result import RangeResult
from tilewise.search.ranges.samples import MOST_RANKED, finalists_of, sample_sizes
from tilewise.search.records import TuneRequest
from tilewise.service.db import models
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.errors import LeaseLostError
from tilewise.service.host.machine import MachineInfo, examine_here
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.lease import Lease
from tilewise.service.jobs.queue import Submitter
from tilewise.service.results import integrity
from tilewise.service.results.schedules import find_fresh
from tilewise.service.results.stored import Lookup
from tilewise.service.results.trials import trials_for_same_work
from tilewise.service.runs.process import load
from tilewise.service.runs.sql import SqlRunStore
from tilewise.service.workers import entry_points
from tilewise.service.workers.job_run import INTERRUPTED, JobOutcome, concluded, run_job

POLL_S = 0.5


@dataclass(frozen=True)
class RangeParts:
    """The functions that a run calls, which tests replace."""

    tune_range: entry_points.RangeTuner | None = None
    tuner: entry_points.Tuner | None = None
    prover: entry_points.Prover | None = None
    machine: MachineInfo | None = None


def run_range(
    sessions: Sessions,
    held: Lease,
    *,
    on_phase: OnPhase = ignore_phase,
    parts: RangeParts | None = None,
    began: float | None = None,
) -> JobOutcome:
    """Run a job of a range; interrupted, it goes back to the queue, as `run_job` does.

    `began` is the moment of `time.monotonic` from which the job's seconds count, by default now.
    """
    store = SqlRunStore(sessions, held)
    began = time.monotonic() if began is None else began
    run = _RangeRun(sessions, store, on_phase, parts or RangeParts(), began)

    def end() -> JobOutcome:
        with store.beating() as should_stop:
            result = run.result(should_stop)
        is_stored = store.done_with_range(result, run.parts.machine or examine_here())
        return JobOutcome("done") if is_stored else INTERRUPTED

    return concluded(store, end)


class _SampleStore(SqlRunStore):
    """Keep the job of a sample, which stops with the job of its range."""

    def __init__(self, sessions: Sessions, held: Lease, is_over: Callable[[], bool]) -> None:
        super().__init__(sessions, held)
        self._is_over = is_over

    @contextmanager
    def beating(self) -> Iterator[Callable[[], bool]]:
        """Renew the lease meanwhile; yield a function that says whether to stop."""
        with super().beating() as should_stop:
            yield lambda: should_stop() or self._is_over()


@dataclass(frozen=True)
class _RangeRun:
    """The steps of one run, over what they share."""

    sessions: Sessions
    store: SqlRunStore
    on_phase: OnPhase
    parts: RangeParts
    began: float

    def result(self, should_stop: Callable[[], bool]) -> RangeResult:
        """Search each sample, and choose the variants."""
        assignment = self.store.assignment
        problems, target = parse_range(assignment.problem), resolve(assignment.target)
        sizes = sample_sizes(problems)
        left = assignment.seconds_left(self.began)
        each_s = None if left is None else left / (len(sizes) + 1)
        request = replace(assignment.request, seconds=each_s)
        load(entry_points.RANGE_CHECK)(problems, target)
        finalists = {}
        for done, size in enumerate(sizes):
            self._tell(SearchPhase("samples", done, len(sizes)))
            finalists[size] = self._searched(problems.at(size), request, should_stop)
        tune_range: entry_points.RangeTuner = self.parts.tune_range or load(
            entry_points.RANGE_TUNER
        )
        result = tune_range(
            problems,
            target,
            request,
            finalists,
            seconds=each_s,
            should_stop=should_stop,
            on_phase=self._tell,
        )
        _require_wanted(should_stop)
        return result

    def _tell(self, phase: SearchPhase) -> None:
        self.on_phase(phase)
        self.store.note(phase)

    def _searched(
        self, problem: Problem, request: TuneRequest, should_stop: Callable[[], bool]
    ) -> list[Schedule]:
        """Return the fastest schedules of a size, of the store or of a search here or elsewhere."""
        work = problem, self.store.assignment.target, request, self.store.toolchain
        with writing(self.sessions) as session:
            by = Submitter(request_id=self.store.request_id or None)
            made = queue.create_or_join(session, *work, by)
            job_id = None if made.job is None else made.job.id
        if job_id is not None:
            self._finish(job_id, should_stop)
        _require_wanted(should_stop)
        with reading(self.sessions) as session:
            return _fastest(session, *work)

    def _finish(self, job_id: int, should_stop: Callable[[], bool]) -> None:
        """Run the job of a sample here, or wait while another process runs it."""
        while not should_stop():
            with writing(self.sessions) as session:
                held = lease.claim_one(session, job_id, me())
            if held is not None:
                parts = self.parts
                store = _SampleStore(self.sessions, held, should_stop)
                ended = run_job(
                    store, tuner=parts.tuner, prover=parts.prover, machine=parts.machine
                )
                _require_done(job_id, ended.state, ended.message)
                return
            with reading(self.sessions) as session:
                job = queue.get(session, job_id)
                if job.state in models.ENDED:
                    _require_done(job_id, job.state, job.error or "")
                    return
            time.sleep(POLL_S)


def _fastest(
    session: Session, problem: Problem, target: str, request: TuneRequest, toolchain: str
) -> list[Schedule]:
    """Return the finalists of a size: its stored best, and other trials of its search."""
    row = find_fresh(session, problem, Lookup(target, toolchain, request.cache))
    if row is None:
        raise RangeError(f"{problem}: its search ended, and no schedule of it is stored")
    integrity.check_result(row)
    trials = islice(trials_for_same_work(session, row, ("timed",)), MOST_RANKED)
    return finalists_of([Schedule.from_json(row.steps), *(one.schedule for one in trials)])


def _require_done(job_id: int, state: str, message: str) -> None:
    if state != "done":
        raise RangeError(f"job {job_id}, which searches a sample, {state}: {message}")


def _require_wanted(should_stop: Callable[[], bool]) -> None:
    if should_stop():
        raise LeaseLostError("the range was cancelled or taken over")
