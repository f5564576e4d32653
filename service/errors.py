"""The errors of `service`: one root, and a class per thing a caller can act on."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import ClassVar


class ServiceError(Exception):
    """Root of every error that `service` raises on purpose.

    `status` is that of an answer over HTTP, None for what no request meets; `kind` is the type of
    its problem document, by default one of the status.
    """

    status: ClassVar[HTTPStatus | None] = None
    retry_after_s: ClassVar[int | None] = None
    kind: ClassVar[str | None] = None


class NotFoundError(ServiceError):
    """The requested object does not exist; the message says what and how to create it."""

    status = HTTPStatus.NOT_FOUND


class ConflictError(ServiceError):
    """The request does not fit the current state of the object."""

    status = HTTPStatus.CONFLICT


class ForbiddenError(ServiceError):
    """The caller may not do this; the message says who may."""

    status = HTTPStatus.FORBIDDEN


class TooManyJobsError(ServiceError):
    """The caller has reached its limit of active jobs; retry when one has ended."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    retry_after_s = 30


class KeyReusedError(ServiceError):
    """An idempotency key was reused with a different request."""


class DatabaseError(ServiceError):
    """The database cannot be used; the message names it and the command or setting that helps."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


class BusyError(DatabaseError):
    """The database is locked or all threads are in use; a retry may succeed.

    A retry after a while is safe and usually succeeds.
    """

    retry_after_s = 2


class UndoneError(BusyError):
    """The database server rolled back a transaction in favour of another.

    The whole of it may be repeated at once.
    """


class OutageError(DatabaseError):
    """The database is unavailable, full or read-only until someone fixes it.

    A retry later is safe: nothing is wrong with the request.
    """

    retry_after_s = 10  # our clients follow a job through ten of these in a row


PASSING = (BusyError, OutageError)
"""What passes, by itself or once the database is mended."""


class UnfinishedError(ServiceError):
    """The result takes longer to generate than a request waits; retry later."""

    retry_after_s = 2


class TamperedError(ServiceError):
    """A stored row does not match its digest, so it is not served.

    The message names the row, what disagrees, and how to have a right one again.
    """

    status = HTTPStatus.INTERNAL_SERVER_ERROR
    kind = "urn:tilewise:tampered-row"


class UnknownTokenError(ServiceError):
    """The token is invalid, or not valid for this."""

    status = HTTPStatus.UNAUTHORIZED


class UnreachableError(ServiceError):
    """The service, or the scheduler of a cluster, has not answered for long."""


class RefusedError(ServiceError):
    """A message of a worker does not fit its job; `faults` describe its fields."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {message}" for field, message in faults))
        self.faults = tuple(faults)


class LeaseLostError(ServiceError):
    """Another process has taken the job; the run stops and writes nothing."""

    status = HTTPStatus.CONFLICT


class ClaimError(ServiceError):
    """A job could not be claimed, for a reason of its own."""

    def __init__(self, job_id: int, message: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class PlanError(ServiceError):
    """A plan cannot be made; the message says why and what to change."""


class WorkerError(ServiceError):
    """A worker process could not be started."""


class DamagedError(ServiceError):
    """A stored row cannot be read; the message names the row, the column and the value."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR
    kind = "urn:tilewise:damaged-row"


class MachineError(ServiceError):
    """This machine could not be examined."""


class HostError(ServiceError):
    """The host to serve on is not an address of this machine."""


class AddressError(ServiceError):
    """The port to serve on is in use, or needs root."""


class ArchiveError(ServiceError):
    """A file is not a valid archive; the message says what is wrong."""


class DrawingError(ServiceError):
    """A plot could not be drawn; the message says what is missing or wrong."""
