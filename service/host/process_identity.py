"""Who holds a lease: one process, told apart from a later one with the same pid."""

import os
import socket
from pathlib import Path

_STATE, _START = 0, 19  # fields of /proc/PID/stat, counted after the command's name


def me() -> str:
    """This process, as `host:pid:starttime`."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_start_time(pid) or 0}"


def is_dead(owner: str) -> bool:
    """Whether `owner` is known to have ended.

    False for processes of other hosts, and for text that names no process at all: nobody here
    can tell. A pid whose process started at another time is a recycled one, so its owner is dead.
    """
    parts = _parts(owner)
    if parts is None or parts[0] != socket.gethostname():
        return False
    _, pid, start = parts
    if not Path("/proc/self/stat").exists():
        return not _answers(pid)
    return _start_time(pid) != start


def _parts(owner: str) -> tuple[str, int, int] | None:
    """Host, pid and start time; None for text that `me` cannot have written."""
    try:
        host, pid, start = owner.rsplit(":", 2)
        return host, int(pid), int(start)
    except ValueError:
        return None


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the process's start; None where there is none that runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name may hold spaces and parentheses; the fields follow the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in "ZX" else int(fields[_START])


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
