"""Trials, candidates and what searches learn from others, as JSON of workers."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.tuning_spec.config import AnySchedule, read_steps
from tilewise.kernels.problem import parse_problem
from tilewise.search.helpers import Exchanged, Helped, RemoteTrial
from tilewise.search.records import (
    LONGEST_SAMPLER,
    MOST_SPREAD,
    Earlier,
    FailureClass,
    Measurement,
    Solved,
    TrialRecord,
    TrialState,
)
from tilewise.search.space.points import TilePoint, point_from_json
from tilewise.service.db.trials import fault_of

LARGEST = 2**31 - 1
LONGEST_MESSAGE = 100_000


def _without_nul(text: str) -> str:
    return text.replace("\0", "")


PLAIN = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Text without control characters: it is printed in terminals, and PostgreSQL stores no NUL."""

Label = Annotated[str, Field(max_length=64, pattern=PLAIN)]
Whole = Annotated[StrictInt, Field(ge=-(2**53), le=2**53)]
Steps = Annotated[list[dict[Label, Whole | Label]], Field(max_length=200)]
Number = Annotated[int, Field(ge=0, le=LARGEST)]
Bytes = Annotated[int, Field(ge=0, le=2**63 - 1)]
Name = Annotated[str, Field(max_length=300, pattern=PLAIN)]
Message = Annotated[str, Field(max_length=LONGEST_MESSAGE), AfterValidator(_without_nul)]
Unbounded = Annotated[float, Field(allow_inf_nan=True)]
"""How far a result is off, which may be infinitely far."""

_Text = Annotated[StrictStr, Field(max_length=300, pattern=PLAIN)]
Params = Annotated[
    dict[Label, StrictBool | Whole | _Text | TilePoint],
    Field(max_length=200),
    BeforeValidator(lambda said: point_from_json(said) if isinstance(said, dict) else said),
]


Word = Literal["go", "stop"]


class Wire(BaseModel):
    """What is said: no more than is declared, and an infinity as text, which JSON lacks."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, ser_json_inf_nan="strings"
    )


class MeasurementWire(Wire):
    """A speed with its 95% interval."""

    gflops: float
    interval: tuple[float, float]
    time_us: float

    @classmethod
    def of(cls, speed: Measurement) -> "MeasurementWire":
        """A speed as it is said."""
        return cls(gflops=speed.gflops, interval=speed.interval, time_us=speed.time_us)

    def measurement(self) -> Measurement:
        """The speed that was said."""
        return Measurement(self.gflops, self.interval, self.time_us)


TRIALS_A_PAGE = 200
MOST_SEARCHES = 1024
MOST_SAMPLES = 100_000


class TrialWire(Wire):
    """One finished trial, as `tilewise.search.records.TrialRecord` has it."""

    number: Number
    steps: Steps
    params: Params
    state: TrialState
    origin: Annotated[str, Field(max_length=LONGEST_SAMPLER, pattern=PLAIN)]
    failure: FailureClass | None = None
    message: Message = ""
    measurement: MeasurementWire | None = None
    samples: Annotated[list[float], Field(max_length=MOST_SAMPLES)]
    pace: float | None = None
    rejected: Number = 0
    compile_s: float = 0.0
    max_error: Unbounded | None = None

    @model_validator(mode="after")
    def _is_a_trial(self) -> Self:
        try:
            fault = fault_of(self.record())
        except KernelsError as error:
            raise ValueError(str(error)) from error
        if fault is not None:
            raise ValueError(fault)
        return self

    @classmethod
    def of(cls, trial: TrialRecord) -> "TrialWire":
        """A trial as it is said."""
        speed = trial.measurement
        return cls(
            steps=trial.schedule.to_json(),
            message=trial.message[:LONGEST_MESSAGE],
            measurement=None if speed is None else MeasurementWire.of(speed),
            samples=list(trial.samples),
            **{name: getattr(trial, name) for name in _SAME},
        )

    def record(self) -> TrialRecord:
        """The trial that was said; ScheduleError where its steps are none."""
        same = {name: getattr(self, name) for name in _SAME}
        return TrialRecord(
            schedule=read_steps(self.steps),
            message=self.message,
            measurement=None if self.measurement is None else self.measurement.measurement(),
            samples=tuple(self.samples),
            **{**same, "params": dict(self.params)},
        )


_CONVERTED = ("steps", "message", "measurement", "samples")
_SAME = tuple(name for name in TrialWire.model_fields if name not in _CONVERTED)
"""The fields that a trial and its message share."""


class AddWire(Wire):
    """A finished trial of a run."""

    epoch: Number
    trial: TrialWire


class TrialsWire(Wire):
    """Finished trials by number; `next` is the number to ask for what follows, null at the end."""

    trials: list[TrialWire]
    next: int | None


class EarlierWire(Wire):
    """An earlier search; `key` is the number of its job."""

    key: Number
    problem: str
    target: str
    trials: int

    @classmethod
    def of(cls, search: Earlier) -> "EarlierWire":
        """A search as it is said."""
        problem = search.problem.canonical
        return cls(key=search.key, problem=problem, target=search.target, trials=search.trials)

    def earlier(self) -> Earlier:
        """The search that was said."""
        return Earlier(self.key, parse_problem(self.problem), self.target, self.trials)


class SolvedWire(Wire):
    """What an earlier search has found: its fastest points and the others that it tried early."""

    problem: str
    target: str
    points: list[tuple[Params, float]]
    slower: list[tuple[Params, float]]

    @classmethod
    def of(cls, found: Solved) -> "SolvedWire":
        """What was found, as it is said."""
        points, slower = list(found.points), list(found.slower)
        problem = found.problem.canonical
        return cls(problem=problem, target=found.target, points=points, slower=slower)

    def solved(self) -> Solved:
        """What was said to be found."""
        problem = parse_problem(self.problem)
        return Solved(problem, self.target, tuple(self.points), tuple(self.slower))


class HistoryWire(Wire):
    """What a search asks of other jobs on the same target before it begins."""

    known_failures: list[str]
    earlier_paces: list[list[float]]


class SearchesWire(Wire):
    """Earlier searches, the newest first."""

    searches: list[EarlierWire]


class AskedWire(Wire):
    """Earlier searches, by their keys, whose findings are asked for."""

    keys: Annotated[list[Number], Field(max_length=MOST_SEARCHES)]


class FoundWire(Wire):
    """What earlier searches have found."""

    found: list[SolvedWire]


MOST_AT_ONCE = 4 * MOST_SPREAD
LONGEST_S = 7 * 86400.0

Seconds = Annotated[float, Field(gt=0, le=LONGEST_S)]


class ControlWire(Wire):
    """The schedule that a machine's pace is read from, and what one run takes at pace 1."""

    steps: Steps
    seconds: Seconds

    def schedule(self) -> AnySchedule:
        """Return the schedule; ScheduleError if the steps are not those of one."""
        return read_steps(self.steps)


class CandidateWire(Wire):
    """A point that is to be tried, as `tilewise.search.helpers.Candidate` has it."""

    number: Number
    steps: Steps
    params: Params
    origin: Annotated[str, Field(max_length=LONGEST_SAMPLER, pattern=PLAIN)]
    best_s: Seconds | None
    control: ControlWire | None

    @model_validator(mode="after")
    def _is_a_candidate(self) -> Self:
        try:
            self.candidate()
        except KernelsError as error:
            raise ValueError(str(error)) from error
        return self

    @classmethod
    def of(cls, candidate: RemoteTrial) -> "CandidateWire":
        """A candidate as it is said."""
        control: Any = candidate.control
        return cls(
            number=candidate.number,
            steps=candidate.steps,
            params=candidate.params,
            origin=candidate.origin,
            best_s=candidate.best_s,
            control=None if control is None else ControlWire(**control),
        )

    def candidate(self) -> RemoteTrial:
        """The candidate that was said; ScheduleError where its steps are none."""
        control = None
        if self.control is not None:
            self.control.schedule()
            control = self.control.model_dump()
        schedule = read_steps(self.steps)
        params = dict(self.params)
        return RemoteTrial(self.number, schedule, params, self.origin, self.best_s, control)


class ExchangeWire(Wire):
    """What a leader offers and wants back.

    `start` is the first trial that it does not know, `back` are numbers of candidates that it takes
    back unless a helper has them, and after `late_s` a helper has lost a candidate.
    """

    epoch: Number
    start: Number
    offered: Annotated[list[CandidateWire], Field(max_length=MOST_AT_ONCE)]
    back: Annotated[list[Number], Field(max_length=MOST_AT_ONCE)]
    late_s: Seconds


class HelpedWire(Wire):
    """A candidate that a helper has tried, as a stored trial."""

    number: Number
    trial: TrialWire
    place: Annotated[str, Field(max_length=64)]

    @classmethod
    def of(cls, helped: Helped) -> "HelpedWire":
        """A trial as it is said."""
        return cls(number=helped.number, trial=TrialWire.of(helped.trial), place=helped.place)

    def helped(self) -> Helped:
        """The trial that was said."""
        return Helped(self.number, self.trial.record(), self.place)


class ExchangedWire(Wire):
    """What an exchange comes to; with `stop`, the job has ended or was taken over."""

    helped: list[HelpedWire]
    out: list[Number]
    helpers: Annotated[int, Field(ge=0, le=LARGEST)]
    word: Word

    @classmethod
    def of(cls, found: Exchanged, word: Word) -> "ExchangedWire":
        """An outcome as it is said."""
        helped = [HelpedWire.of(one) for one in found.helped]
        return cls(helped=helped, out=sorted(found.out), helpers=found.helpers, word=word)

    def exchanged(self) -> Exchanged:
        """The outcome that was said."""
        return Exchanged([one.helped() for one in self.helped], set(self.out), self.helpers)


class HelpWire(Wire):
    """What a helper has tried, under its candidate's number, and how many it wants to hold."""

    epoch: Number
    answer: TrialWire | None
    wants: Annotated[int, Field(ge=0, le=MOST_AT_ONCE)]


class GivenWire(Wire):
    """All candidates that a helper holds; with `stop`, the search needs no help any more."""

    candidates: list[CandidateWire]
    word: Word
