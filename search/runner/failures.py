"""Failures of candidates, on both sides of the pipe."""

from kernels.errors import LoweringError, ScheduleError
from search.records import FailureClass
from search.runner.protocol import Message


class CandidateFailureError(Exception):
    """A candidate failed.

    Attributes:
        kind: its class.
        index: which of several finalists it was; None where that is not known.
    """

    def __init__(self, kind: FailureClass, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.index = index


class FailureError(Exception):
    """A candidate's failure with its class, and which of several it was."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.index = 0


def failure_of(error: Exception) -> Message:
    """The answer that stands for a candidate's failure, with its class."""
    match error:
        case FailureError():
            return {"failure": error.kind, "message": str(error), "index": error.index}
        case ScheduleError():
            return {"failure": "constraint", "message": str(error)}
        case LoweringError():
            return {"failure": "compile", "message": str(error)}
        case MemoryError():
            return {"failure": "memory", "message": str(error) or "out of memory"}
    return {"failure": "runtime", "message": f"{type(error).__name__}: {error}"}
