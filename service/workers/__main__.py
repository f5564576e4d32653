"""The worker process: run one claimed job and end (`python -m tilewise.service.workers --job ID`).

All compiling and timing happens here, so that the service stays small and outlives it. The job is
stored in the database, or at a service (`--service URL`), whose token for it is read from stdin.
"""

import argparse
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from types import FrameType

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.children import die_with_parent
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target import resolve
from tilewise.search.errors import SearchError
from tilewise.service import errors
from tilewise.service.db import schema
from tilewise.service.db.session import STATEMENT_S, Sessions, make_engine, make_sessions
from tilewise.service.host.process_identity import me
from tilewise.service.jobs.lease import Lease
from tilewise.service.runs.http import HttpLeader, HttpPlanStore, HttpRunStore, RunCalls
from tilewise.service.runs.process import UNREACHABLE, load
from tilewise.service.runs.sql import SqlPlanStore, SqlRunStore, patiently
from tilewise.service.settings import Settings
from tilewise.service.telemetry.logs import bind, configure_logs
from tilewise.service.telemetry.traces import start_tracing
from tilewise.service.workers.entry_points import HELPER, PLANNER, PROVER, TUNER, Helper
from tilewise.service.workers.job_run import RunStore, run_job
from tilewise.service.workers.range_run import run_range

CONNECTIONS = 4  # the search, the heartbeat, the prover, and one to spare

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Run one job; log what that raises, and return the exit code.

    0: the run's end is stored, or the run belongs to another. `UNREACHABLE`: the service or
    database was away for long. Anything else counts as a crash.
    """
    options = _parser().parse_args(arguments)
    work = _help if options.helps else {"model": _plan, "range": _range}.get(options.kind, _run)
    settings = Settings(db=options.db) if options.db else Settings()
    configure_logs(settings.log_level, settings.log_format)
    bind(job=options.job, epoch=options.epoch)
    signal.signal(signal.SIGTERM, _exit)
    if options.parent is not None:
        die_with_parent(options.parent)
    try:
        work(options, settings)
    except errors.LeaseLostError as error:
        log.info("%s", error)
    except (errors.UnreachableError, *errors.PASSING) as error:
        log.error("%s", error)
        return UNREACHABLE
    except errors.ServiceError as error:
        log.error("%s", error)
        return 1
    return 0


def _exit(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _plan(options: argparse.Namespace, settings: Settings) -> None:
    """Make the plan of a model; the planner is loaded here, for it loads compilers."""
    from tilewise.service.workers.planning import run_claimed

    if not options.service:
        with _database(options, settings.db) as (sessions, held):
            run_claimed(SqlPlanStore(sessions, held), load(options.planner))
        return
    with closing(_calls(options)) as calls:
        store = HttpPlanStore(calls, me(), options.toolchain or identity())
        bind(epoch=store.epoch)
        run_claimed(store, load(options.planner))


def _range(options: argparse.Namespace, settings: Settings) -> None:
    """Tune a range, and those of its samples that nobody else tunes."""
    tuner, prover = load(options.tuner), load(options.prover)
    with _database(options, settings.db) as (sessions, held):
        outcome = run_range(sessions, held, tuner=tuner, prover=prover)
    log.info("%s %s", outcome.state, outcome.message)


def _run(options: argparse.Namespace, settings: Settings) -> None:
    with ExitStack() as stack:
        store: RunStore
        if options.service:
            calls = stack.enter_context(closing(_calls(options)))
            store = HttpRunStore(calls, me(), options.toolchain or identity(), options.job)
            bind(epoch=store.epoch)
        else:
            store = SqlRunStore(*stack.enter_context(_database(options, settings.db)))
        stack.enter_context(_traced(options.job, store))
        outcome = run_job(store, tuner=load(options.tuner), prover=load(options.prover))
    log.info("%s %s", outcome.state, outcome.message)


def _help(options: argparse.Namespace, _settings: Settings) -> None:
    """Try candidates of a job whose leader runs elsewhere."""
    with closing(_calls(options)) as calls:
        leader = HttpLeader(calls, me(), options.toolchain or identity(), options.job)
        bind(epoch=leader.epoch, request_id=leader.request_id)
        run_worker: Helper = load(options.helper)
        assignment = leader.assignment
        try:
            problem, target = parse_problem(assignment.problem), resolve(assignment.target)
            count = run_worker(problem, target, assignment.request, leader)
        except (KernelsError, SearchError) as error:
            raise errors.WorkerError(f"this machine cannot help: {error}") from error
    log.info("helped with %d candidates", count)


@contextmanager
def _database(options: argparse.Namespace, url: str) -> Iterator[tuple[Sessions, Lease]]:
    """The database, and the lease of the run that has claimed the job."""
    engine = make_engine(url, connections=CONNECTIONS, statement_s=STATEMENT_S)
    held = Lease(options.job, options.owner, options.epoch)
    try:
        patiently(lambda _: schema.check(engine), held.name)
        yield make_sessions(engine), held
    finally:
        engine.dispose()


def _calls(options: argparse.Namespace) -> RunCalls:
    """To the service, with the token on stdin."""
    return RunCalls(options.service, options.job, sys.stdin.readline().strip())


@contextmanager
def _traced(job_id: int, store: RunStore) -> Iterator[None]:
    """One run of a job, under the id of the request that created it."""
    request_id = store.request_id
    bind(request_id=request_id)
    tracing = start_tracing("worker")
    if tracing is None:
        yield
        return
    with tracing.job(job=job_id, epoch=store.epoch, request_id=request_id):
        yield
    tracing.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tilewise.service.workers", description=__doc__)
    parser.add_argument("--db", help="database URL; default TILEWISE_DB")
    parser.add_argument("--job", type=int, required=True, help="the job's number")
    parser.add_argument("--owner", default="", help="holder of the job's lease in the database")
    parser.add_argument("--epoch", type=int, default=0, help="number of this run, likewise")
    parser.add_argument("--parent", type=int, help="pid of the process to end with")
    parser.add_argument(
        "--kind", choices=("tune", "range", "recheck", "model"), default="tune", help="of the job"
    )
    parser.add_argument("--service", help="URL of a service that keeps the job")
    parser.add_argument("--toolchain", help="identity of the compilers; default: computed")
    parser.add_argument("--tuner", default=TUNER, help="module:function that searches")
    parser.add_argument("--prover", default=PROVER, help="module:function that proves a script")
    parser.add_argument("--planner", default=PLANNER, help="module:function that makes a plan")
    parser.add_argument("--helps", action="store_true", help="help a run at the service")
    parser.add_argument("--helper", default=HELPER, help="module:function that helps")
    return parser


if __name__ == "__main__":
    sys.exit(main())
