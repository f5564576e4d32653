"""The errors of `service`: one root, and a class per thing a caller can act on."""


class ServiceError(Exception):
    """Root of every error that `service` raises on purpose."""


class NotFoundError(ServiceError):
    """What was asked for does not exist; the message says what and how to make it."""


class ConflictError(ServiceError):
    """The request makes no sense in the state that the thing is in."""


class DatabaseError(ServiceError):
    """The database cannot be used as it is: read-only, another schema, unreachable.

    The message names the database and the command or the setting that mends it.
    """


class LeaseLostError(ServiceError):
    """Another process has taken the job; whoever meets this stops and writes nothing."""


class MachineError(ServiceError):
    """This machine could not be examined."""
