"""Trials of the run's own job, and what other jobs tell of theirs."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.tuning_spec.config import read_steps
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import (
    LONGEST_SAMPLER,
    Earlier,
    FailureClass,
    Solved,
    TrialRecord,
    TrialState,
)
from tilewise.service.db.sound import fault_of
from tilewise.service.runs.wire.base import (
    LONGEST_MESSAGE,
    PLAIN,
    MeasurementWire,
    Message,
    Number,
    Params,
    Steps,
    Unbounded,
    Wire,
)

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
            number=trial.number,
            steps=trial.schedule.to_json(),
            params=trial.params,
            state=trial.state,
            origin=trial.origin,
            failure=trial.failure,
            message=trial.message[:LONGEST_MESSAGE],
            measurement=None if speed is None else MeasurementWire.of(speed),
            samples=list(trial.samples),
            pace=trial.pace,
            rejected=trial.rejected,
            compile_s=trial.compile_s,
            max_error=trial.max_error,
        )

    def record(self) -> TrialRecord:
        """The trial that was said; ScheduleError where its steps are none."""
        return TrialRecord(
            number=self.number,
            schedule=read_steps(self.steps),
            params=dict(self.params),
            state=self.state,
            origin=self.origin,
            failure=self.failure,
            message=self.message,
            measurement=None if self.measurement is None else self.measurement.measurement(),
            samples=tuple(self.samples),
            pace=self.pace,
            rejected=self.rejected,
            compile_s=self.compile_s,
            max_error=self.max_error,
        )


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
