"""What a worker does with a plan that it is given: Dask runs `make_plan` there.

A child of the worker makes it, since the worker itself loads no compilers. Texts go both ways,
and nothing else that a process would have to unpickle.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tilewise.kernels.system.children import ONE_THREAD, child_command, child_environment
from tilewise.service.plans.child import MADE, MODULE, ORDER
from tilewise.service.workers.endings import end, reason_of, sweep

CHILD = "tilewise.service.plans.child"
MOST_S = 1800.0
LOOK_S = 0.5
GRACE_S = 3.0


def make_plan(order: str, module: bytes, child: str = CHILD) -> str:
    """Make a plan on this worker.

    Args:
        order: `tilewise.service.plans.orders.Order` as JSON.
        module: of the plan.
        child: the module that makes it.

    Returns:
        JSON of `tilewise.service.plans.making.Made`; an object with `refused` where there can be no
        plan, with `died` where the process that made it did.
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
            why = _watched(running, is_wanted)
        finally:
            sweep(running)
            running.wait()
        made = folder / MADE
        if why or not made.exists():
            return json.dumps({"died": why or "it has left no plan"})
        return made.read_text(encoding="utf-8")


def _watched(child: "subprocess.Popen[bytes]", is_wanted: Callable[[], bool]) -> str:
    """Wait for a child; why it has not ended well, else nothing."""
    until = time.monotonic() + MOST_S
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
            return f"it took more than {MOST_S:.0f} s"
