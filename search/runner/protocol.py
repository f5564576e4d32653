"""What the runner and its child exchange: requests and replies, each a line of JSON."""

import json
from dataclasses import dataclass, field
from typing import IO, Any

from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.search.records import FailureClass

Message = dict[str, Any]


@dataclass(frozen=True)
class Ready:
    """A child is set up."""


@dataclass(frozen=True)
class CompileReply:
    """A schedule is compiled; `compile_s` seconds were spent on it."""

    compile_s: float


@dataclass(frozen=True)
class TrialReply:
    """A schedule was compiled, was right, and was timed.

    Attributes:
        times: of one run, in seconds, of each sample that was kept.
        pace: of the machine meanwhile; None where no control told it.
        takes_over: whether it may be the control of those that follow.
        rejected: samples that were preempted.
        pruned: whether it was given up early, clearly slower than the best.
        compile_s, measure_s: seconds that were spent on it.
        max_error: deviation from the reference, and `tolerance`, what it may be.
        accuracy: rms errors in those of the direct method, by the kind of operands; of a schedule
            that is direct there are none.
    """

    times: tuple[float, ...]
    pace: float | None
    takes_over: bool
    rejected: int
    pruned: bool
    compile_s: float
    measure_s: float
    max_error: float
    tolerance: float
    accuracy: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TimedInTurn:
    """One contender's samples, by placement of the buffers.

    Attributes:
        times: of one run, in seconds.
        rounds: the round that each is of.
    """

    times: tuple[tuple[float, ...], ...]
    rounds: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class FinalsReply:
    """Finalists, and other libraries, timed in turn.

    Attributes:
        finalists: in the order in which they were asked for.
        rejected: samples of finalists that were preempted.
        peers: of each library its fastest way.
        peak_gflops: multiply-add peak, measured in the same run.
        scratch_bytes: of each finalist's panels, by operand.
        cold: how the caches were emptied before each sample; None if they were hot.
        accuracy: of each finalist, as for a trial.
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

    Attributes:
        ways: their names.
        absent: the reason.
        deviations: of each way the largest error, and the tolerance there.
    """

    ways: tuple[str, ...] = ()
    absent: str | None = None
    deviations: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class TimedWay:
    """One way of a library, and its samples in seconds; `output` says what it fills."""

    peer: str
    variant: str
    output: str | None
    times: tuple[float, ...]


@dataclass(frozen=True)
class BesideReply:
    """A schedule and every way of the libraries, timed in turn."""

    times: tuple[float, ...]
    ways: tuple[TimedWay, ...]
    absent: dict[str, str] = field(default_factory=dict)
    peak_gflops: float = 0.0


@dataclass(frozen=True)
class Failed:
    """A request failed, by the candidate's fault.

    Attributes:
        failure: its class.
        index: which of several finalists it was; None where that is not known.
    """

    failure: FailureClass
    message: str
    index: int | None = None


Reply = Ready | CompileReply | TrialReply | FinalsReply | PeerReply | BesideReply | Failed


def write_message(stream: IO[bytes], message: Message) -> None:
    """Send one message and flush."""
    stream.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
    stream.flush()


def read_message(line: bytes) -> Message:
    """Read one line; ValueError when it is not an object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"expected an object, got {line[:80]!r}")
    return message


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
