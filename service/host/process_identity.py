"""The identity of a process that holds a lease, distinct from later ones with its pid."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_STATE, _START = 0, 19  # fields of /proc/PID/stat, counted after the command's name


@dataclass(frozen=True)
class Owner:
    """A process that holds a lease.

    `started` are clock ticks from boot to its start, 0 if unknown.
    """

    host: str
    pid: int
    started: int

    @classmethod
    def here(cls) -> "Owner":
        """Return this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _start_time(pid) or 0)

    @classmethod
    def parse(cls, text: str) -> "Owner | None":
        """Parse the text that `str` returns; return None for other text."""
        try:
            host, pid, started = text.rsplit(":", 2)
            return cls(host, int(pid), int(started))
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started}"

    @property
    def has_ended(self) -> bool:
        """Whether it is known to have ended; a process of another host never is.

        A pid whose process started at another time is a recycled one.
        """
        if self.host != socket.gethostname():
            return False
        if not Path("/proc/self/stat").exists():
            return not _is_pid_taken(self.pid)
        return _start_time(self.pid) != self.started


def me() -> str:
    """Return this process's name in leases: `host:pid:starttime`."""
    return str(Owner.here())


def is_dead(owner: str) -> bool:
    """Return whether the process that a lease names is known to have ended."""
    named = Owner.parse(owner)
    return named is not None and named.has_ended


def host_of(owner: str) -> str | None:
    """Return the host of the process that a lease names, or None."""
    named = Owner.parse(owner)
    return None if named is None else named.host


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the process's start; None where there is none that runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name may hold spaces and parentheses; the fields follow the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in "ZX" else int(fields[_START])


def _is_pid_taken(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
