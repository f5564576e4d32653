"""The sockets of a service, opened before its parts are started."""

import errno
import os
import resource
import socket
from typing import Any

from tilewise.kernels.quoting import quoted
from tilewise.service.errors import AddressError, HostError

BACKLOG = 2048  # as uvicorn's
MOST_FILES = 65_536
OTHER_FILES = 256  # databases, pipes to children, logs
MOST_STREAMS = 1000  # of one kind: of jobs, of plans, of overviews
KINDS_OF_STREAMS = 3
_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets on every address of `host`; port 0 takes any free one.

    Raises HostError if it is not an address of this machine, AddressError if the port is taken or
    privileged.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise HostError(f"host={quoted(host)} is not an address of this machine") from error
    opened: list[socket.socket] = []
    for family, _, _, _, (name, _, *scope) in dict.fromkeys(found):
        wanted = opened[0].getsockname()[1] if opened else port
        try:
            place: Any = name, wanted, *scope
            opened.append(socket.create_server(place, family=family, backlog=BACKLOG))
            # asyncio does it only for sockets that name the protocol. Connections inherit it;
            # else a body waits for the client's delayed ACK of the headers, about 40 ms.
            opened[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            if error.errno in _ABSENT:  # as `::1` of a name, where there is no IPv6
                continue
            for one in opened:
                one.close()
            raise AddressError(f"port={wanted} of {host} {_reason(error)}") from error
    if not opened:
        raise HostError(f"host={quoted(host)} is not an address of this machine")
    return opened


def raise_file_limit() -> int:
    """Allow this process as many open files as its hard limit does; return how many.

    Each stream of events holds a connection, and the default soft limit of many systems is 1024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MOST_FILES if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def most_streams() -> int:
    """Return how many streams of one kind the limit on open files allows, at most 1000."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_STREAMS
    return max(1, min(MOST_STREAMS, (soft - OTHER_FILES) // KINDS_OF_STREAMS))


def _reason(error: OSError) -> str:
    reasons = {
        errno.EADDRINUSE: "is taken; give another, or 0 for one that is free",
        errno.EACCES: "is for privileged users alone; give one from 1024 on",
    }
    number = error.errno or 0
    return reasons.get(number, f"cannot be had: {os.strerror(number)}")
