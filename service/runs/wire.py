"""The JSON messages between a remote worker and the service about one run.

First trials, candidates and earlier searches; then the start, the phases and the end of a run.
"""

from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic
from pydantic_core import CoreSchema, core_schema

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.tuning_spec.config import AnySchedule, Configuration, read_steps
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.schema.base import declared
from tilewise.search import records
from tilewise.search.helpers import Exchanged, Helped, RemoteTrial
from tilewise.search.progress import PhaseName, SearchPhase
from tilewise.search.records import Measurement, TrialRecord, TuneRequest, TuneResult, Winner
from tilewise.search.space.points import TilePoint, point_from_json
from tilewise.service.db.trials import fault_of
from tilewise.service.jobs.plans import PlanPhase
from tilewise.service.runs.sql import RunAssignment

LARGEST = 2**31 - 1
LONGEST_MESSAGE = 100_000
PLAIN = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Text without control characters: it is printed in terminals, and PostgreSQL stores no NUL."""

Label = Annotated[str, pydantic.Field(max_length=64, pattern=PLAIN)]
Whole = Annotated[pydantic.StrictInt, pydantic.Field(ge=-(2**53), le=2**53)]
Steps = Annotated[list[dict[Label, Whole | Label]], pydantic.Field(max_length=200)]
Number = Annotated[int, pydantic.Field(ge=0, le=LARGEST)]
Bytes = Annotated[int, pydantic.Field(ge=0, le=2**63 - 1)]
Name = Annotated[str, pydantic.Field(max_length=300, pattern=PLAIN)]
Message = Annotated[
    str, pydantic.AfterValidator(lambda text: text.replace("\0", "")[:LONGEST_MESSAGE])
]
"""Of any length; what is longer is cut off."""

Unbounded = Annotated[float, pydantic.Field(allow_inf_nan=True)]
"""How far a result is off, which may be infinitely far."""

_Text = Annotated[pydantic.StrictStr, pydantic.Field(max_length=300, pattern=PLAIN)]
Params = Annotated[
    dict[Label, pydantic.StrictBool | Whole | _Text | TilePoint],
    pydantic.Field(max_length=200),
    pydantic.BeforeValidator(
        lambda value: point_from_json(value) if isinstance(value, dict) else value
    ),
]
Origin = Annotated[str, pydantic.Field(max_length=records.LONGEST_SAMPLER, pattern=PLAIN)]


def _schedule(value: object, steps: pydantic.ValidatorFunctionWrapHandler) -> AnySchedule:
    """Return a schedule, or the one of some steps; ValueError where they are those of none."""
    if isinstance(value, Schedule | Configuration):
        return value
    try:
        return read_steps(steps(value))
    except KernelsError as error:
        raise ValueError(str(error)) from error


def _of_steps(_kind: Any, handler: pydantic.GetCoreSchemaHandler) -> CoreSchema:
    return core_schema.no_info_wrap_validator_function(_schedule, handler.generate_schema(Steps))


WireSchedule = Annotated[
    AnySchedule,
    pydantic.GetPydanticSchema(_of_steps),
    pydantic.PlainSerializer(lambda made: made.to_json()),
]
"""A schedule, as its steps."""


def _problem(value: object, text: pydantic.ValidatorFunctionWrapHandler) -> Problem:
    return value if isinstance(value, Problem) else parse_problem(text(value))


WireProblem = Annotated[
    Problem,
    pydantic.GetPydanticSchema(
        lambda _kind, handler: core_schema.no_info_wrap_validator_function(
            _problem, handler.generate_schema(str)
        )
    ),
    pydantic.PlainSerializer(lambda made: made.canonical),
]
"""A problem, as its canonical string."""

Word = Literal["go", "stop"]
Value = TypeVar("Value")


class Wire(pydantic.BaseModel):
    """Base of messages: no undeclared fields; infinities are text, which JSON lacks.

    `model_validate` takes an object with attributes of the same names as well.
    """

    model_config = pydantic.ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        ser_json_inf_nan="strings",
        from_attributes=True,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    def to(self, kind: type[Value]) -> Value:
        """Return the message as a dataclass with the same fields."""
        return kind(**dict(self))


class EpochWire(Wire):
    """Base of messages of one run."""

    epoch: Number


TRIALS_A_PAGE = 200
MOST_SEARCHES = 1024
MOST_SAMPLES = 100_000


class TrialWire(Wire):
    """One finished trial (`tilewise.search.records.TrialRecord`)."""

    number: Number
    schedule: WireSchedule = pydantic.Field(alias="steps")
    params: Params
    state: records.TrialState
    origin: Origin
    failure: records.FailureClass | None = None
    message: Message = ""
    measurement: records.Measurement | None = None
    samples: Annotated[tuple[float, ...], pydantic.Field(max_length=MOST_SAMPLES)]
    speed_factor: float | None = pydantic.Field(default=None, alias="pace")
    rejected: Number = 0
    compile_s: float = 0.0
    max_error: Unbounded | None = None

    @pydantic.model_validator(mode="after")
    def _is_a_trial(self) -> Self:
        fault = fault_of(self.record())
        if fault is not None:
            raise ValueError(fault)
        return self

    def record(self) -> records.TrialRecord:
        """Return the trial of the message."""
        return self.to(records.TrialRecord)


class AddWire(EpochWire):
    """A finished trial of a run."""

    trial: TrialWire


class TrialsWire(Wire):
    """Finished trials by number; `next` is the number of the next page, null at the end."""

    trials: list[TrialWire]
    next: int | None


class EarlierWire(Wire):
    """An earlier search; `key` is the number of its job."""

    key: Number
    problem: WireProblem
    target: str
    trials: int


class SolvedWire(Wire):
    """The result of an earlier search: its fastest and its first points."""

    problem: WireProblem
    target: str
    points: tuple[tuple[Params, float], ...]
    slower: tuple[tuple[Params, float], ...]


class HistoryWire(Wire):
    """Results of other jobs on the same target that a search needs before it starts."""

    known_failures: list[str]
    earlier_speed_factors: list[list[float]] = pydantic.Field(alias="earlier_paces")


class SearchesWire(Wire):
    """Earlier searches, the newest first."""

    searches: list[EarlierWire]


class SearchKeysWire(Wire):
    """Keys of earlier searches whose results are requested."""

    keys: Annotated[list[Number], pydantic.Field(max_length=MOST_SEARCHES)]


class FoundWire(Wire):
    """The results of earlier searches."""

    found: list[SolvedWire]


MOST_AT_ONCE = 4 * records.MOST_SPREAD
LONGEST_S = 7 * 86400.0

Seconds = Annotated[float, pydantic.Field(gt=0, le=LONGEST_S)]


class ControlWire(Wire):
    """The control schedule, and the time of one run at machine speed factor 1."""

    schedule: WireSchedule = pydantic.Field(alias="steps")
    seconds: Seconds


class CandidateWire(Wire):
    """A point to try (`tilewise.search.helpers.RemoteTrial`)."""

    number: Number
    schedule: WireSchedule = pydantic.Field(alias="steps")
    params: Params
    origin: Origin
    best_s: Seconds | None
    control: ControlWire | None

    def candidate(self) -> RemoteTrial:
        """Return the candidate of the message."""
        control = None if self.control is None else self.control.model_dump()
        return RemoteTrial(**{**dict(self), "control": control})


class ExchangeWire(EpochWire):
    """The candidates that a leader offers and withdraws.

    `start` is the first trial that it does not know, `back` are numbers of candidates that it takes
    back unless a helper has them, and after `late_s` a helper has lost a candidate.
    """

    start: Number
    offered: Annotated[list[CandidateWire], pydantic.Field(max_length=MOST_AT_ONCE)]
    back: Annotated[list[Number], pydantic.Field(max_length=MOST_AT_ONCE)]
    late_s: Seconds


class HelpedWire(Wire):
    """A candidate that a helper has tried, as a stored trial."""

    number: Number
    trial: TrialWire
    place: Annotated[str, pydantic.Field(max_length=64)]

    def helped(self) -> Helped:
        """Return the trial of the message."""
        return Helped(self.number, self.trial.record(), self.place)


class ExchangedWire(Wire):
    """The result of an exchange; with `stop`, the job has ended or was taken over."""

    helped: list[HelpedWire]
    out: list[Number]
    helpers: Annotated[int, pydantic.Field(ge=0, le=LARGEST)]
    word: Word

    def exchanged(self) -> Exchanged:
        """Return the outcome of the message."""
        return Exchanged([one.helped() for one in self.helped], set(self.out), self.helpers)


class HelpWire(EpochWire):
    """The trial of a helper's candidate, and how many candidates it wants."""

    answer: TrialWire | None
    wants: Annotated[int, pydantic.Field(ge=0, le=MOST_AT_ONCE)]


class GivenWire(Wire):
    """All candidates that a helper holds; with `stop`, the search needs no help any more."""

    candidates: list[CandidateWire]
    word: Word


class BeginWire(Wire):
    """The process that begins a run, and its compilers."""

    owner: Name
    toolchain: Name


class _SubjectWire(EpochWire):
    """What a run tunes, and where."""

    problem: str
    target: str


_FIELDS: dict[str, Any] = {name: (hint, ...) for name, (hint, _) in declared(TuneRequest).items()}
_Search: Any = pydantic.create_model("_Search", __base__=_SubjectWire, **_FIELDS)


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

    @pydantic.model_validator(mode="after")
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
Elapsed = Annotated[float, pydantic.Field(ge=0, le=1e9)]
Deviation = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=True)]


class MachineWire(Wire):
    """The machine of a run."""

    host: Annotated[str, pydantic.Field(max_length=255)]
    cpu: Annotated[str, pydantic.Field(max_length=64)]
    cores: Annotated[int, pydantic.Field(ge=1, le=LARGEST)]
    memory_bytes: Bytes
    caches: Annotated[dict[Label, Bytes], pydantic.Field(max_length=MOST_NAMES)]
    features: Annotated[tuple[Label, ...], pydantic.Field(max_length=1000)]


class ProofWire(Wire):
    """The outcome of a proof."""

    ok: bool
    applied: bool
    executed: bool
    max_error: Unbounded | None
    tolerance: Annotated[float, pydantic.Field(ge=0)] | None
    gflops: float | None
    interval: tuple[float, float] | None
    time_us: float | None
    mlir: Annotated[str, pydantic.Field(max_length=100)]
    failure: Annotated[str, pydantic.Field(max_length=64)] | None
    message: Message
    script: str | None


class AttemptWire(Wire):
    """One attempt to prove a schedule's script; without a proof the prover failed."""

    schedule: WireSchedule = pydantic.Field(alias="steps")
    proof: ProofWire | None
    error: Message = ""
    failure: Label = "prover"


class BestWire(Wire):
    """The winner of the final benchmark (`tilewise.search.records.Winner`)."""

    schedule: WireSchedule = pydantic.Field(alias="steps")
    measurement: Measurement
    peak_gflops: float
    runners_up: Annotated[
        tuple[tuple[WireSchedule, Measurement], ...], pydantic.Field(max_length=MOST_RUNNERS_UP)
    ]
    scratch_bytes: Annotated[dict[Label, Bytes], pydantic.Field(max_length=MOST_NAMES)]
    samples: Number
    placements: Number
    rejected: Number
    disturbed: Number
    taken: Number = 0
    rounds: Number = 0
    spread: Annotated[float, pydantic.Field(ge=0)] = 0.0
    cold: Name | None
    accuracy: Annotated[dict[Label, Deviation], pydantic.Field(max_length=MOST_NAMES)]


class EndWire(EpochWire):
    """The result of a run, without its trials."""

    best: BestWire
    peers: Annotated[dict[Label, Measurement], pydantic.Field(max_length=MOST_NAMES)]
    elapsed_s: Elapsed
    complete: bool
    attempts: Annotated[list[AttemptWire], pydantic.Field(max_length=MOST_ATTEMPTS)]
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
