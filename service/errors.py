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


class BusyError(DatabaseError):
    """Nothing is wrong but the moment: the database is locked, or all that serves is in use.

    Asking again after `RETRY_AFTER_S` is safe and as a rule enough.
    """


class UnfinishedError(ServiceError):
    """What was asked for is being made, and takes longer than a request waits; ask again."""


class LeaseLostError(ServiceError):
    """Another process has taken the job; whoever meets this stops and writes nothing."""


class MachineError(ServiceError):
    """This machine could not be examined."""


class HostError(ServiceError):
    """A host to serve on that is no address of this machine."""


class AddressError(ServiceError):
    """A port to serve on that cannot be had: another has it, or only root may."""
