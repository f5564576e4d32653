"""The sockets that a service listens on, had before any of its parts is started."""

import errno
import socket

from kernels.quoting import quoted
from service.errors import AddressError, HostError

BACKLOG = 2048  # as uvicorn's
_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of `host` that this machine has.

    Args:
        host: a name or an address of this machine.
        port: the same for all addresses; 0 for one that is free.

    Raises:
        HostError: `host` is no address of this machine.
        AddressError: the port is taken, or only root may have it.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise HostError(f"host={quoted(host)} is no address of this machine") from error
    opened: list[socket.socket] = []
    for family, _, _, _, (name, _, *scope) in dict.fromkeys(found):
        wanted = opened[0].getsockname()[1] if opened else port
        try:
            opened.append(_listening(family, (name, wanted, *scope)))
        except OSError as error:
            if error.errno in _ABSENT:  # as `::1` of a name, where there is no IPv6
                continue
            for one in opened:
                one.close()
            raise AddressError(f"port={wanted} of {host} {_reason(error)}") from error
    if not opened:
        raise HostError(f"host={quoted(host)} is no address of this machine")
    return opened


def _listening(family: socket.AddressFamily, address: tuple[str | int, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        # Another may bind the same port as long as nobody listens.
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _reason(error: OSError) -> str:
    reasons = {
        errno.EADDRINUSE: "is taken; give another, or 0 for one that is free",
        errno.EACCES: "is for privileged users alone; give one from 1024 on",
    }
    return reasons.get(error.errno or 0, f"cannot be had: {error.strerror or error}")
