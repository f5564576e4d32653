"""How a run begins, its orders, its phases and its end, as JSON between worker and service."""

from typing import Annotated, Any, Self

from pydantic import Field, create_model, model_validator

from tilewise.kernels.mlir.tuning_spec.config import AnySchedule, read_steps
from tilewise.schema.base import declared
from tilewise.search.progress import PhaseName, SearchPhase
from tilewise.search.records import TrialRecord, TuneRequest, TuneResult, Winner
from tilewise.service.host.machine import MachineInfo
from tilewise.service.jobs.outcome import Attempt
from tilewise.service.runs.keeper import RunOrder
from tilewise.service.runs.wire.trials import (
    LARGEST,
    LONGEST_MESSAGE,
    Bytes,
    Label,
    MeasurementWire,
    Message,
    Name,
    Number,
    Steps,
    Unbounded,
    Wire,
    Word,
)


class BeginWire(Wire):
    """Who begins a run, and with which compilers."""

    owner: Name
    toolchain: Name


class _SubjectWire(Wire):
    """What a run tunes, and where."""

    epoch: Number
    problem: str
    target: str


_FIELDS: dict[str, Any] = {name: (hint, ...) for name, (hint, _) in declared(TuneRequest).items()}
_Search: Any = create_model("_Search", __base__=_SubjectWire, **_FIELDS)


class OrderWire(_Search):  # type: ignore[misc]  # a base made of `TuneRequest` at run time
    """What a run is to do, and the number of the run."""

    elapsed_s: float
    request_id: str

    @classmethod
    def of(cls, order: RunOrder, epoch: int, request_id: str) -> "OrderWire":
        """An order as it is said."""
        return cls(
            epoch=epoch,
            problem=order.problem,
            target=order.target,
            elapsed_s=order.elapsed_s,
            request_id=request_id,
            **vars(order.request),
        )

    def order(self, job_id: int) -> RunOrder:
        """The order that was said."""
        return RunOrder(job_id, self.problem, self.target, TuneRequest.of(self), self.elapsed_s)


class PhaseWire(Wire):
    """What a run does now, and how much of it is done."""

    epoch: Number
    name: PhaseName
    done: Number
    total: Number

    @model_validator(mode="after")
    def _is_within_total(self) -> Self:
        if self.total and self.done > self.total:
            raise ValueError(f"done={self.done} is above total={self.total}")
        return self

    def phase(self) -> SearchPhase:
        """The phase that was said."""
        return SearchPhase(self.name, self.done, self.total)


class EpochWire(Wire):
    """Which run says something."""

    epoch: Number


class WordWire(Wire):
    """Whether a run goes on."""

    word: Word


MOST_ATTEMPTS = 32
MOST_RUNNERS_UP = 256
MOST_NAMES = 100
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Deviation = Annotated[float, Field(ge=0, allow_inf_nan=True)]


class MachineWire(Wire):
    """The machine that a run was on."""

    host: Annotated[str, Field(max_length=255)]
    cpu: Annotated[str, Field(max_length=64)]
    cores: Annotated[int, Field(ge=1, le=LARGEST)]
    memory_bytes: Bytes
    caches: Annotated[dict[Label, Bytes], Field(max_length=MOST_NAMES)]
    features: Annotated[list[Label], Field(max_length=1000)]

    @classmethod
    def of(cls, machine: MachineInfo) -> "MachineWire":
        """A machine as it is said."""
        return cls(**{**vars(machine), "features": list(machine.features)})

    def machine(self) -> MachineInfo:
        """The machine that was said."""
        return MachineInfo(**{**dict(self), "features": tuple(self.features)})


class ProofWire(Wire):
    """What became of a script that was put to the proof."""

    ok: bool
    applied: bool
    executed: bool
    max_error: Unbounded | None
    tolerance: Annotated[float, Field(ge=0)] | None
    gflops: float | None
    interval: tuple[float, float] | None
    time_us: float | None
    mlir: Annotated[str, Field(max_length=100)]
    failure: Annotated[str, Field(max_length=64)] | None
    message: Message
    script: str | None


class AttemptWire(Wire):
    """One schedule's script that was put to the proof; without a proof the prover failed."""

    steps: Steps
    proof: ProofWire | None
    error: Message = ""
    failure: Label = "prover"

    @classmethod
    def of(cls, attempt: Attempt) -> "AttemptWire":
        """An attempt as it is said."""
        proof, steps = attempt.proof, attempt.schedule.to_json()
        if proof is None:
            error = attempt.error[:LONGEST_MESSAGE]
            return cls(steps=steps, proof=None, error=error, failure=attempt.failure)
        said = {name: getattr(proof, name) for name in ProofWire.model_fields}
        said["message"] = said["message"][:LONGEST_MESSAGE]
        return cls(steps=steps, proof=ProofWire(**said))

    def schedule(self) -> AnySchedule:
        """Return the schedule; ScheduleError if the steps are not those of one."""
        return read_steps(self.steps)


class FinalistWire(Wire):
    """A schedule with its speed in the finals."""

    steps: Steps
    measurement: MeasurementWire


class BestWire(Wire):
    """The winner of the finals, as `tilewise.search.records.Best` has it."""

    steps: Steps
    measurement: MeasurementWire
    peak_gflops: float
    runners_up: Annotated[list[FinalistWire], Field(max_length=MOST_RUNNERS_UP)]
    scratch_bytes: Annotated[dict[Label, Bytes], Field(max_length=MOST_NAMES)]
    samples: Number
    placements: Number
    rejected: Number
    disturbed: Number
    taken: Number = 0
    rounds: Number = 0
    spread: Annotated[float, Field(ge=0)] = 0.0
    cold: Name | None
    accuracy: Annotated[dict[Label, Deviation], Field(max_length=MOST_NAMES)]

    @classmethod
    def of(cls, best: Winner) -> "BestWire":
        """A winner as it is said."""
        runners_up = [
            FinalistWire(steps=schedule.to_json(), measurement=MeasurementWire.of(speed))
            for schedule, speed in best.runners_up
        ]
        said = {name: getattr(best, name) for name in _PLAIN}
        return cls(
            steps=best.schedule.to_json(),
            measurement=MeasurementWire.of(best.measurement),
            runners_up=runners_up,
            **said,
        )

    def best(self) -> Winner:
        """The winner that was said."""
        runners_up = tuple(
            (read_steps(one.steps), one.measurement.measurement()) for one in self.runners_up
        )
        return Winner(
            schedule=read_steps(self.steps),
            measurement=self.measurement.measurement(),
            runners_up=runners_up,
            **{name: getattr(self, name) for name in _PLAIN},
        )


_PLAIN = tuple(
    name for name in BestWire.model_fields if name not in ("steps", "measurement", "runners_up")
)


class EndWire(Wire):
    """What a run has found, without its trials, which are stored."""

    epoch: Number
    best: BestWire
    peers: Annotated[dict[Label, MeasurementWire], Field(max_length=MOST_NAMES)]
    elapsed_s: Seconds
    complete: bool
    attempts: Annotated[list[AttemptWire], Field(max_length=MOST_ATTEMPTS)]
    machine: MachineWire

    def result(self, trials: tuple[TrialRecord, ...]) -> TuneResult:
        """What was found, with the trials that are stored."""
        peers = {name: speed.measurement() for name, speed in self.peers.items()}
        return TuneResult(self.best.best(), trials, self.elapsed_s, self.complete, peers)


class FailWire(Wire):
    """Why a run ends without a result."""

    epoch: Number
    message: Message


class CrashWire(Wire):
    """How the process of a run has died."""

    why: Message


class EndedWire(Wire):
    """Whether the job ended with what was said; false where it was cancelled or taken over."""

    ended: bool
