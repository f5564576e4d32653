"""Start and end child processes."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).parents[3]
"""The folder that the package `tilewise` is in; not resolved, since `kernels` may be a link."""

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_PR_SET_PDEATHSIG = 1


def child_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this code in a child that ends with this process.

    On Linux it ends with the thread that starts it. `-P` keeps the working folder out of the path,
    so that a user's folder named `search` is not imported; `child_environment` names ours.
    """
    return [
        sys.executable,
        "-P",
        "-m",
        "tilewise.kernels.system.start",
        str(os.getpid()),
        module,
        *arguments,
    ]


def child_environment(**extra: str) -> dict[str, str]:
    """Return this process's environment, with this code first in the path."""
    root = str(ROOT)
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([root, inherited] if inherited else [root])
    return {**os.environ, "PYTHONPATH": path, **extra}


def die_with_parent(parent: int) -> None:
    """End this process when its parent ends, however that ends; exit if `parent` is gone already.

    Linux kills it with the thread that started it. Elsewhere a child has to notice the end of its
    input.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call above
        raise SystemExit(f"the process {parent} that started this one is gone")


def has_ended(child: "subprocess.Popen[bytes]") -> bool:
    """Return whether a child has ended; its pid and group stay reserved until `end_group`."""
    if not hasattr(os, "waitid"):
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_group(child: "subprocess.Popen[bytes]") -> None:
    """End a child that leads a process group, and everything in that group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def private_output() -> BinaryIO:
    """Return the real stdout, for replies alone; other output goes to stderr."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it cannot be read."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGSEGV`; its number if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


MOST_STEP_S = 1.0
"""Of one look to the next no more counts: who looks every few hundredths of a second and finds
more has not run. That much may be load."""
_STOPPED = "Tt"  # by a signal, by a debugger


@dataclass
class Patience:
    """A limit to a wait, for a waiter that polls often.

    `spent_s` counts time in which both the waiter and the process run, up to `seconds`.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    spent_s: float = field(default=0.0, init=False)
    _looked_at: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._looked_at = self.clock()

    def is_over(self, pid: int) -> bool:
        """Return whether the process `pid` has used its time; called at each poll."""
        moment = self.clock()
        step, self._looked_at = moment - self._looked_at, moment
        if not is_stopped(pid):
            self.spent_s += min(step, MOST_STEP_S)
        return self.spent_s > self.seconds


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped (SIGSTOP, a debugger); False if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError):
        return False
    # The name may hold spaces and parentheses; the state follows the last one.
    return stat.rpartition(")")[2].split()[0] in _STOPPED
