"""Failures of candidates, on both sides of the pipe."""

from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.search.records import FailureClass
from tilewise.search.runner.protocol import Failed


class CandidateFailureError(Exception):
    """A candidate failed, in a child or by taking it down.

    Attributes:
        kind: its class.
        index: which of several finalists it was; None where that is not known.
    """

    def __init__(self, kind: FailureClass, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.index = index


def failure_of(error: Exception) -> Failed:
    """The reply that stands for a candidate's failure, with its class."""
    match error:
        case CandidateFailureError():
            return Failed(error.kind, str(error), error.index)
        case ScheduleError():
            return Failed("constraint", str(error))
        case LoweringError():
            return Failed("compile", str(error))
        case MemoryError():
            return Failed("memory", str(error) or "out of memory")
    return Failed("runtime", f"{type(error).__name__}: {error}")
