"""Choose the backend of a command: a service where one is named, else this machine."""

import os
from typing import TYPE_CHECKING, Union

from tilewise.errors import BadInputError
from tilewise.kernels.system.children import ONE_THREAD

if TYPE_CHECKING:
    from tilewise.backends.local import LocalBackend
    from tilewise.backends.remote import RemoteBackend

Backend = Union["LocalBackend", "RemoteBackend"]
"""Runs commands here or at a service, with the same methods; a context manager."""


def open_backend(server: str | None, database: str | None, began: float | None = None) -> Backend:
    """Return the backend at a service or here; by default as the environment says.

    `began` is the moment of `time.monotonic` from which a budget in seconds counts. Raises
    BadInputError as `named_server`.
    """
    server = named_server(server, database)
    if not server:
        return local_backend(database, began)
    from tilewise.backends.remote import RemoteBackend

    return RemoteBackend(server)


def named_server(server: str | None, database: str | None = None) -> str | None:
    """Return the URL of the service that an option names, else `TILEWISE_SERVER`, if any.

    The variable gives way to a database that an option names; BadInputError if both options do.
    """
    if server and database:
        raise BadInputError("give --db or --server, not both: a service has its own database")
    return server or (None if database else os.environ.get("TILEWISE_SERVER")) or None


def local_backend(database: str | None, began: float | None = None) -> Backend:
    """Return a backend on this machine; raise ModuleNotFoundError without its extra."""
    # The search's own matrices are small: threads would only spin where candidates are timed.
    os.environ.update(ONE_THREAD)
    from tilewise.backends.local import LocalBackend

    return LocalBackend(database, began)
