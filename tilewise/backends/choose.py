"""Which backend a command gets: a service where one is named, else this machine."""

import os

from tilewise.backends.base import Backend
from tilewise.errors import BadInputError
from tilewise.kernels.system.children import ONE_THREAD


def open_backend(server: str | None, database: str | None, began: float | None = None) -> Backend:
    """The backend at a service, or here.

    Args:
        server: its URL; None is the environment's, if any.
        database: the URL of this machine's database; None is the environment's.
        began: the moment of `time.monotonic` from which a budget in seconds counts.

    Raises:
        BadInputError: both are given.
        ModuleNotFoundError: the extra that running here needs is not installed.
    """
    server = named_server(server)
    if server and database:
        raise BadInputError("give --db or --server, not both: a service has its own database")
    return remote_backend(server) if server else local_backend(database, began)


def named_server(server: str | None) -> str | None:
    """The URL of the service that an option or `TILEWISE_SERVER` names, if any."""
    return server or os.environ.get("TILEWISE_SERVER") or None


def remote_backend(url: str) -> Backend:
    """A backend at a service."""
    from tilewise.backends.remote import RemoteBackend

    return RemoteBackend(url)


def local_backend(database: str | None, began: float | None = None) -> Backend:
    """A backend on this machine; ModuleNotFoundError where the extra is not installed."""
    # The search's own matrices are small: threads would only spin where candidates are timed.
    os.environ.update(ONE_THREAD)
    from tilewise.backends.local import LocalBackend

    return LocalBackend(database, began)
