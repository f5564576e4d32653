"""Run one claimed job of a range: search its samples, time the finalists, store variants.

Each sample has a job of its own, which other processes may run; a stored result answers without.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
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
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.host.machine import MachineInfo, examine_here
from tilewise.service.jobs import queue
from tilewise.service.jobs.lease import Lease
from tilewise.service.jobs.queue import Submitter
from tilewise.service.results import integrity
from tilewise.service.results.schedules import find_fresh
from tilewise.service.results.stored import Lookup
from tilewise.service.results.trials import trials_for_same_work
from tilewise.service.runs.sql import SqlRunStore, transacted
from tilewise.service.workers.entry_points import Prover, Tuner
from tilewise.service.workers.job_run import (
    INTERRUPTED,
    JobOutcome,
    concluded,
    run_job,
    run_or_wait,
)


def run_range(
    sessions: Sessions,
    held: Lease,
    *,
    on_phase: OnPhase = ignore_phase,
    tune_range: Callable[..., RangeResult] | None = None,
    tuner: Tuner | None = None,
    prover: Prover | None = None,
    machine: MachineInfo | None = None,
    began: float | None = None,
) -> JobOutcome:
    """Run a job of a range; interrupted, it goes back to the queue, as `run_job` does.

    `began` is the moment of `time.monotonic` from which the job's seconds count, by default now.
    """
    store = SqlRunStore(sessions, held)
    began = time.monotonic() if began is None else began
    search = partial(run_job, tuner=tuner, prover=prover, machine=machine)

    def end() -> JobOutcome:
        with store.beating() as should_stop:
            run = _RangeRun(sessions, store, on_phase, search, should_stop)
            result = run.result(tune_range, began)
        is_stored = store.done_with_range(result, machine or examine_here())
        return JobOutcome("done") if is_stored else INTERRUPTED

    return concluded(store, end)


@dataclass(frozen=True)
class _RangeRun:
    """The steps of one run, over what they share."""

    sessions: Sessions
    store: SqlRunStore
    on_phase: OnPhase
    search: Callable[[SqlRunStore], JobOutcome]
    should_stop: Callable[[], bool]

    def result(self, tune_range: Callable[..., RangeResult] | None, began: float) -> RangeResult:
        """Search each sample, and choose the variants."""
        from tilewise.search.ranges import tune  # it loads compilers

        assignment = self.store.assignment
        problems, target = parse_range(assignment.problem), resolve(assignment.target)
        sizes = sample_sizes(problems)
        left = assignment.seconds_left(began)
        each_s = None if left is None else left / (len(sizes) + 1)
        request = replace(assignment.request, seconds=each_s)
        tune.check_served(problems, target)
        finalists = {}
        for done, size in enumerate(sizes):
            self._tell(SearchPhase("samples", done, len(sizes)))
            finalists[size] = self._searched(problems.at(size), request)
        choose, work = tune_range or tune.tune_range, (problems, target, request, finalists)
        return choose(*work, seconds=each_s, should_stop=self.should_stop, on_phase=self._tell)

    def _tell(self, phase: SearchPhase) -> None:
        self.on_phase(phase)
        self.store.note(phase)

    def _searched(self, problem: Problem, request: TuneRequest) -> list[Schedule]:
        """Return the fastest schedules of a size, of the store or of a search here or elsewhere."""
        work = problem, self.store.assignment.target, request, self.store.toolchain
        by, name = Submitter(request_id=self.store.request_id or None), str(problem)
        made = transacted(
            self.sessions, writing, lambda session: queue.create_or_join(session, *work, by), name
        )
        if made.job is not None:
            job_id = made.job.id
            ended = run_or_wait(
                self.sessions,
                job_id,
                lambda held: self.search(SqlRunStore(self.sessions, held, self.should_stop)),
                should_stop=self.should_stop,
            )
            if ended.state != "done":
                message = f"which searches a sample, {ended.state}: {ended.message}"
                raise RangeError(f"job {job_id}, {message}")
            self.store.progressed()
        return transacted(self.sessions, reading, lambda session: _fastest(session, *work), name)


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
