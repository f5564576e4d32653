"""The worker process: runs one claimed job and ends (`python -m service.workers --job ID`).

All compiling and timing happens here, so that the service stays small and outlives it.
"""

import argparse
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kernels.system.children import die_with_parent
from service.db import schema
from service.db.models import Job
from service.db.session import Sessions, make_engine, make_sessions, reading
from service.errors import ServiceError
from service.jobs.lease import Lease
from service.runs.sql import SqlKeeper
from service.settings import Settings
from service.telemetry.logs import bind, configure_logs
from service.telemetry.traces import start_tracing
from service.workers.entry_points import PROVER, TUNER, load
from service.workers.job_run import run_job

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Run one job.

    Returns:
        0 when the job's end is in the database; anything else counts as a crash.
    """
    options = _parser().parse_args(arguments)
    settings = Settings(db=options.db) if options.db else Settings()
    configure_logs(settings.log_level, settings.log_format)
    bind(job=options.job, epoch=options.epoch)
    signal.signal(signal.SIGTERM, _exit)
    if options.parent is not None:
        die_with_parent(options.parent)
    engine = make_engine(settings.db)
    try:
        schema.check(engine)
        sessions = make_sessions(engine)
        with _traced(sessions, options.job, options.epoch):
            outcome = run_job(
                SqlKeeper(sessions, Lease(options.job, options.owner, options.epoch)),
                tuner=load(options.tuner),
                prover=load(options.prover),
            )
    except ServiceError as error:
        log.error("%s", error)
        return 1
    finally:
        engine.dispose()
    log.info("%s %s", outcome.state, outcome.message)
    return 0


@contextmanager
def _traced(sessions: Sessions, job_id: int, epoch: int) -> Iterator[None]:
    """One run of a job, under the id of the request that asked for it."""
    with reading(sessions) as session:
        job = session.get(Job, job_id)
    request_id = "" if job is None or job.request_id is None else job.request_id
    bind(request_id=request_id)
    tracing = start_tracing("worker")
    if tracing is None:
        yield
        return
    with tracing.job(job=job_id, epoch=epoch, request_id=request_id):
        yield
    tracing.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m service.workers", description=__doc__)
    parser.add_argument("--db", help="database URL; default TILEWISE_DB")
    parser.add_argument("--job", type=int, required=True, help="the job's number")
    parser.add_argument("--owner", required=True, help="holder of the job's lease")
    parser.add_argument("--epoch", type=int, required=True, help="number of this run of the job")
    parser.add_argument("--parent", type=int, help="pid of the process to end with")
    parser.add_argument("--tuner", default=TUNER, help="module:function that searches")
    parser.add_argument("--prover", default=PROVER, help="module:function that proves a script")
    return parser


def _exit(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
