"""Requests and replies between a runner and its child, one line of JSON each."""

import json
from dataclasses import dataclass, field
from typing import IO, Any

from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.search.records import FailureClass

Message = dict[str, Any]


@dataclass(frozen=True)
class Ready:
    """The child is set up."""


@dataclass(frozen=True)
class CompileReply:
    """A schedule is compiled."""

    compile_s: float


@dataclass(frozen=True)
class TrialReply:
    """A schedule was compiled, correct and timed, as a `TrialRecord` has it.

    It is `pruned` if it was stopped early. `accuracy` has rms errors relative to the direct method,
    by kind of operands; it is empty for the direct one.
    """

    times: tuple[float, ...]
    speed_factor: float | None
    takes_over: bool
    rejected: int
    pruned: bool
    compile_s: float
    measure_s: float
    max_error: float
    accuracy: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TimedInTurn:
    """One contender's times in seconds and their rounds, by placement of the buffers."""

    times: tuple[tuple[float, ...], ...]
    rounds: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class FinalistsReply:
    """Finalists, and the fastest way of each other library, timed in turn.

    `rejected` counts preempted samples of finalists. The other facts are those of a `Winner`.
    """

    finalists: tuple[TimedInTurn, ...]
    rejected: int
    peers: dict[str, TimedInTurn]
    peak_gflops: float
    scratch_bytes: tuple[dict[str, int], ...]
    cold: str | None
    accuracy: tuple[dict[str, float], ...] = ()


@dataclass(frozen=True)
class PeerReply:
    """A library that is ready, or why it is absent.

    `deviations` has the largest error of each way and its tolerance.
    """

    ways: tuple[str, ...] = ()
    absent: str | None = None
    deviations: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class TimedWay:
    """One way of a library with its times in seconds; `output` is its result type if narrower."""

    peer: str
    variant: str
    output: str | None
    times: tuple[float, ...]


@dataclass(frozen=True)
class RoundsReply:
    """A schedule and every way of the libraries, timed in turn."""

    times: tuple[float, ...]
    ways: tuple[TimedWay, ...]
    absent: dict[str, str] = field(default_factory=dict)
    peak_gflops: float = 0.0


@dataclass(frozen=True)
class Failed:
    """A request failed because of the candidate; `index` is that of a finalist, if known."""

    failure: FailureClass
    message: str
    index: int | None = None


Reply = Ready | CompileReply | TrialReply | FinalistsReply | PeerReply | RoundsReply | Failed


def write_message(stream: IO[bytes], message: Message) -> None:
    """Send and flush one message."""
    stream.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
    stream.flush()


def read_message(line: bytes) -> Message:
    """Parse one line; raise ValueError if it is no object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"expected an object, got {line[:80]!r}")
    return message


class CandidateFailureError(Exception):
    """A candidate failed, or took its child down; `index` is that of a finalist."""

    def __init__(self, kind: FailureClass, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.index = index


def failure_of(error: Exception) -> Failed:
    """Return the reply for a candidate's failure."""
    match error:
        case CandidateFailureError():
            return Failed(error.kind, str(error), error.index)
        case ScheduleError():
            return Failed("constraint", str(error))
        case LoweringError():
            return Failed("compile", str(error))
    return Failed("runtime", f"{type(error).__name__}: {error}")
