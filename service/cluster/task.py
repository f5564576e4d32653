"""What a worker does with a job that it is given: Dask runs `run_offer` there, or `make_plan`.

A child of the worker runs the job; all compiling and timing happens in it or below, since the
worker itself loads no compilers. Here it is only watched, so that a job that was cancelled or given
to somebody else is killed at once, also in the middle of a trial.
"""

import contextlib
import json
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tilewise.kernels.system.children import (
    ONE_THREAD,
    child_command,
    child_environment,
    end_group,
)
from tilewise.service.errors import LeaseLostError, ServiceError, UnreachableError
from tilewise.service.runs.http import PATIENCE_S, RunCalls
from tilewise.service.runs.process import UNREACHABLE
from tilewise.service.runs.wire.orders import CrashWire, EndedWire
from tilewise.service.workers.endings import end, reason_of

BEAT_S = 0.5
GRACE_S = 3.0
TELLING_S = 30.0
MOST_PLANNING_S = 1800.0
LOOK_S = 0.5

PLANNING = "tilewise.service.workers.planning"
ORDER, MODULE, MADE = "order.json", "module.mlir", "made.json"

log = logging.getLogger(__name__)


def run_offer(
    job_id: int, token: str, service: str, toolchain: str, arguments: Sequence[str] = ()
) -> None:
    """Run one job on this worker, until it has ended or belongs to somebody else.

    Only this process and the child know the token. `arguments` are passed to
    `tilewise.service.workers`.
    """
    from distributed import Status, get_worker

    worker = get_worker()
    command = child_command(
        "tilewise.service.workers",
        f"--job={job_id}",
        f"--service={service}",
        f"--toolchain={toolchain}",
        f"--parent={os.getpid()}",
        *arguments,
    )
    child = subprocess.Popen(
        command,
        env=child_environment(**ONE_THREAD),
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    _tell_token(child, token)
    calls = RunCalls(service, job_id, token, patience_s=TELLING_S)
    try:
        watch(child, calls, lambda: worker.status == Status.running)
    finally:
        end_group(child)
        calls.close()


def _tell_token(child: "subprocess.Popen[bytes]", token: str) -> None:
    """Say it where no other process can read it, as command lines and environments can be."""
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin as said:
        said.write(token.encode())


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


def make_plan(order: str, module: bytes, child: str = PLANNING) -> str:
    """Make a plan on this worker, with the module `child` as process.

    `order` is an `Order` of `tilewise.service.jobs.plans` as JSON. Returns a `Made` as JSON, or an
    object with `refused` (there can be no plan) or `died` (the process has).
    """
    from distributed import Status, get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        task = worker.state.tasks.get(key)  # Dask interrupts no function: a cancelled one looks
        is_ours = task is not None and task.state == "executing"
        return is_ours and bool(worker.status == Status.running)

    with tempfile.TemporaryDirectory(prefix="tilewise-plan-") as name:
        folder = Path(name)
        (folder / ORDER).write_text(order, encoding="utf-8")
        (folder / MODULE).write_bytes(module)
        running = subprocess.Popen(
            child_command(child, str(folder)),
            env=child_environment(**ONE_THREAD),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            why = _wait_for_plan(running, is_wanted)
        finally:
            end_group(running)
        made = folder / MADE
        if why or not made.exists():
            return json.dumps({"died": why or "it has left no plan"})
        return made.read_text(encoding="utf-8")


def _wait_for_plan(child: "subprocess.Popen[bytes]", is_wanted: Callable[[], bool]) -> str:
    """Wait for a child; why it has not ended well, else nothing."""
    until = time.monotonic() + MOST_PLANNING_S
    while True:
        try:
            code = child.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            pass
        else:
            return "" if code == 0 else reason_of(code)
        if not is_wanted():
            end(child, GRACE_S)
            return "its worker has left the cluster, or it was cancelled"
        if time.monotonic() > until:
            return f"it took more than {MOST_PLANNING_S:.0f} s"
