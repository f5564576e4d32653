"""The identity of a process that holds a lease, distinct from later ones with its pid."""

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_STATE, _START = 0, 19  # fields of /proc/PID/stat, counted after the command's name


@dataclass(frozen=True)
class Owner:
    """A process that holds a lease.

    `started` are clock ticks from boot to its start, 0 if unknown. `pids` identifies the boot and
    the PID namespace in which `pid` is a number, empty if unknown.
    """

    host: str
    pid: int
    started: int
    pids: str = ""

    @classmethod
    def here(cls) -> "Owner":
        """Return this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _start_time(pid) or 0, _own_pids())

    @classmethod
    def parse(cls, text: str) -> "Owner | None":
        """Parse the text that `str` returns; return None for other text."""
        named, _, pids = text.partition("@")
        try:
            host, pid, started = named.rsplit(":", 2)
            return cls(host, int(pid), int(started), pids)
        except ValueError:
            return None

    def __str__(self) -> str:
        name = f"{self.host}:{self.pid}:{self.started}"
        return f"{name}@{self.pids}" if self.pids else name

    @property
    def has_ended(self) -> bool:
        """Whether it is known to have ended.

        That of another host, boot or PID namespace never is: containers and clones of a machine may
        share a hostname. A pid whose process started at another time is a recycled one.
        """
        if (self.host, self.pids) != (socket.gethostname(), _own_pids()):
            return False
        if not Path("/proc/self/stat").exists():
            return not _is_pid_taken(self.pid)
        return _start_time(self.pid) != self.started


def me() -> str:
    """Return this process's name in leases: `host:pid:starttime@boot.namespace`."""
    return str(Owner.here())


def is_dead(owner: str) -> bool:
    """Return whether the process that a lease names is known to have ended."""
    named = Owner.parse(owner)
    return named is not None and named.has_ended


def host_of(owner: str) -> str | None:
    """Return the host of the process that a lease names, or None."""
    named = Owner.parse(owner)
    return None if named is None else named.host


@cache
def _own_pids() -> str:
    """Return the boot and the PID namespace of this process; empty where Linux has neither."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


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
