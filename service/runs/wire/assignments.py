"""JSON messages about the start, phases and end of a run."""

from typing import Annotated, Any, Self

from pydantic import Field, create_model, model_validator

from tilewise.schema.base import declared
from tilewise.search.progress import PhaseName, SearchPhase
from tilewise.search.records import Measurement, TrialRecord, TuneRequest, TuneResult, Winner
from tilewise.service.jobs.plans import PlanPhase
from tilewise.service.runs.sql import RunAssignment
from tilewise.service.runs.wire.trials import (
    LARGEST,
    Bytes,
    EpochWire,
    Label,
    Message,
    Name,
    Number,
    Unbounded,
    Wire,
    WireSchedule,
    Word,
)


class BeginWire(Wire):
    """The process that begins a run, and its compilers."""

    owner: Name
    toolchain: Name


class _SubjectWire(EpochWire):
    """What a run tunes, and where."""

    problem: str
    target: str


_FIELDS: dict[str, Any] = {name: (hint, ...) for name, (hint, _) in declared(TuneRequest).items()}
_Search: Any = create_model("_Search", __base__=_SubjectWire, **_FIELDS)


class AssignmentWire(_Search):  # type: ignore[misc]  # a base made of `TuneRequest` at run time
    """The work of a run, and its epoch."""

    elapsed_s: float
    request_id: str

    @classmethod
    def of(cls, assignment: RunAssignment, epoch: int, request_id: str) -> "AssignmentWire":
        """Return the message of an assignment."""
        return cls(
            epoch=epoch,
            problem=assignment.problem,
            target=assignment.target,
            elapsed_s=assignment.elapsed_s,
            request_id=request_id,
            **vars(assignment.request),
        )

    def assignment(self, job_id: int) -> RunAssignment:
        """Return the order of the message."""
        return RunAssignment(
            job_id, self.problem, self.target, TuneRequest.of(self), self.elapsed_s
        )


class PlanWire(EpochWire):
    """A plan for a run to make (`tilewise.service.jobs.plans.PlanAssignment`)."""

    order: dict[str, Any]


class ChosenWire(EpochWire):
    """The phase of a run that makes a plan, and the plan once it is chosen."""

    phase: PlanPhase
    plan: dict[str, Any] | None


class MadeWire(EpochWire):
    """A plan that was made (`tilewise.service.jobs.plans.Made`)."""

    made: dict[str, Any]


class PhaseWire(EpochWire):
    """The phase of a run and its progress."""

    name: PhaseName
    done: Number
    total: Number

    @model_validator(mode="after")
    def _is_within_total(self) -> Self:
        if self.total and self.done > self.total:
            raise ValueError(f"done={self.done} is above total={self.total}")
        return self

    def phase(self) -> SearchPhase:
        """Return the phase of the message."""
        return SearchPhase(self.name, self.done, self.total)


class WordWire(Wire):
    """The answer whether a run may continue."""

    word: Word


MOST_ATTEMPTS = 32
MOST_RUNNERS_UP = 256
MOST_NAMES = 100
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Deviation = Annotated[float, Field(ge=0, allow_inf_nan=True)]


class MachineWire(Wire):
    """The machine of a run."""

    host: Annotated[str, Field(max_length=255)]
    cpu: Annotated[str, Field(max_length=64)]
    cores: Annotated[int, Field(ge=1, le=LARGEST)]
    memory_bytes: Bytes
    caches: Annotated[dict[Label, Bytes], Field(max_length=MOST_NAMES)]
    features: Annotated[tuple[Label, ...], Field(max_length=1000)]


class ProofWire(Wire):
    """The outcome of a proof."""

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
    """One attempt to prove a schedule's script; without a proof the prover failed."""

    schedule: WireSchedule = Field(alias="steps")
    proof: ProofWire | None
    error: Message = ""
    failure: Label = "prover"


class BestWire(Wire):
    """The winner of the final benchmark (`tilewise.search.records.Winner`)."""

    schedule: WireSchedule = Field(alias="steps")
    measurement: Measurement
    peak_gflops: float
    runners_up: Annotated[
        tuple[tuple[WireSchedule, Measurement], ...], Field(max_length=MOST_RUNNERS_UP)
    ]
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


class EndWire(EpochWire):
    """The result of a run, without its trials."""

    best: BestWire
    peers: Annotated[dict[Label, Measurement], Field(max_length=MOST_NAMES)]
    elapsed_s: Seconds
    complete: bool
    attempts: Annotated[list[AttemptWire], Field(max_length=MOST_ATTEMPTS)]
    machine: MachineWire

    def result(self, trials: tuple[TrialRecord, ...]) -> TuneResult:
        """Return the result of the message, with the stored trials."""
        return TuneResult(self.best.to(Winner), trials, self.elapsed_s, self.complete, self.peers)


class FailWire(EpochWire):
    """Why a run ends without a result."""

    message: Message


class CrashWire(Wire):
    """The crash of a run's process."""

    why: Message


class EndedWire(Wire):
    """Whether the job ended with this result; false if it was cancelled or taken over."""

    ended: bool
