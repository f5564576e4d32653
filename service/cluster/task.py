"""The task that Dask runs on a worker: `run_offer` runs one assigned job.

A child of the worker runs the job; all compiling and timing happens in it or below, since the
worker itself loads no compilers. Here it is only watched, so that a job that was cancelled or given
to another process is killed at once, also in the middle of a trial.
"""

import contextlib
import logging
import subprocess
import time
from collections.abc import Callable, Sequence

from tilewise.kernels.system.children import ONE_THREAD, end_group
from tilewise.service.errors import LeaseLostError, ServiceError, UnreachableError
from tilewise.service.runs.http import PATIENCE_S, RunCalls
from tilewise.service.runs.process import UNREACHABLE
from tilewise.service.runs.wire import CrashWire, EndedWire
from tilewise.service.workers.completion import end, reason_of, start

BEAT_S = 0.5
GRACE_S = 3.0
TELLING_S = 30.0

log = logging.getLogger(__name__)


def run_offer(
    job_id: int, token: str, service: str, toolchain: str, arguments: Sequence[str] = ()
) -> None:
    """Run one job on this worker, until it has ended or belongs to another process.

    Only this process and the child know the token. `arguments` are passed to
    `tilewise.service.workers`.
    """
    from distributed import Status, get_worker

    worker = get_worker()
    child = start(
        "tilewise.service.workers",
        f"--job={job_id}",
        f"--service={service}",
        f"--toolchain={toolchain}",
        *arguments,
        environment=ONE_THREAD,
        stdin=subprocess.PIPE,
    )
    _tell_token(child, token)
    calls = RunCalls(service, job_id, token, patience_s=TELLING_S)
    try:
        watch(child, calls, lambda: worker.status == Status.running)
    finally:
        end_group(child)
        calls.close()


def _tell_token(child: "subprocess.Popen[bytes]", token: str) -> None:
    """Send it on stdin: other processes can read command lines and environments."""
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin as stream:
        stream.write(token.encode())


def watch(child: "subprocess.Popen[bytes]", calls: RunCalls, is_member: Callable[[], bool]) -> None:
    """Wait for a child, and kill it once its run is over or this worker left its cluster."""
    heard_s = time.monotonic()
    while True:
        try:
            code = child.wait(BEAT_S)
        except subprocess.TimeoutExpired:
            pass
        else:
            if code not in (0, UNREACHABLE):
                _tell_crash(calls, reason_of(code))
            return
        if not is_member():
            end(child, GRACE_S)  # it gives its job back by itself
            return
        goes_on = calls.goes_on()
        if goes_on:
            heard_s = time.monotonic()
        elif goes_on is False:
            return
        elif time.monotonic() - heard_s > PATIENCE_S:
            log.error("the service has not answered for %.0f s; the job is given up", PATIENCE_S)
            return


def _tell_crash(calls: RunCalls, why: str) -> None:
    """Have it counted that the child has died; nobody to blame the job where that fails."""
    try:
        calls.post("/crashed", CrashWire(why=why), EndedWire)
    except (LeaseLostError, UnreachableError):
        return
    except ServiceError as error:
        log.error("%s", error)
