"""JSON messages about trials, candidates and earlier searches."""

from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic
from pydantic_core import CoreSchema, core_schema

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.tuning_spec.config import AnySchedule, Configuration, read_steps
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.search import records
from tilewise.search.helpers import Exchanged, Helped, RemoteTrial
from tilewise.search.space.points import TilePoint, point_from_json
from tilewise.service.db.trials import fault_of

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
