"""Candidates between the leader of a job and its helpers, and the trials that come of them."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.tuning_spec.config import AnySchedule, read_steps
from tilewise.search.helpers import Candidate, Exchanged, Helped
from tilewise.search.records import LONGEST_SAMPLER, MOST_SPREAD
from tilewise.service.runs.wire.base import LARGEST, PLAIN, Number, Params, Steps, Wire
from tilewise.service.runs.wire.orders import Word
from tilewise.service.runs.wire.trials import TrialWire

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
    def of(cls, candidate: Candidate) -> "CandidateWire":
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

    def candidate(self) -> Candidate:
        """The candidate that was said; ScheduleError where its steps are none."""
        control = None
        if self.control is not None:
            self.control.schedule()
            control = self.control.model_dump()
        schedule = read_steps(self.steps)
        params = dict(self.params)
        return Candidate(self.number, schedule, params, self.origin, self.best_s, control)


class ExchangeWire(Wire):
    """What a leader puts out and wants back.

    Attributes:
        epoch: number of its run.
        start: number of the first trial that it does not know.
        offered: new candidates.
        back: numbers of candidates that it takes back, unless a helper has them.
        late_s: seconds after which a helper has lost a candidate.
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
    """What a helper has tried, and how much it has use for.

    Attributes:
        epoch: number of the run that it has joined.
        answer: a trial, under the number of its candidate; null where it has tried none.
        wants: so many candidates it holds at most.
    """

    epoch: Number
    answer: TrialWire | None
    wants: Annotated[int, Field(ge=0, le=MOST_AT_ONCE)]


class GivenWire(Wire):
    """All candidates that a helper holds; with `stop`, the search needs no help any more."""

    candidates: list[CandidateWire]
    word: Word
