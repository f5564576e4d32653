"""Trials, measurements and results of a search, as frozen values.

Nothing here imports numba or optuna, so that the service and the client stay light.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, get_args

from tilewise.kernels.quoting import quoted
from tilewise.search.errors import BudgetError

if TYPE_CHECKING:  # they take a tenth of a second
    from tilewise.kernels.mlir.tuning_spec.config import AnySchedule
    from tilewise.kernels.problem import Problem

SAMPLERS = ("surrogate", "local", "tpe", "gp", "cmaes", "random", "grid")
DEFAULT_SAMPLER = SAMPLERS[0]
LONGEST_SAMPLER = 200  # characters of a name
MOST_TRIALS = 100_000
MOST_SOLVED = 32  # of the fastest points of an earlier search that another reads
MOST_EARLY = 128  # of its first trials, of which slow ones count too
RECHECKED = "recheck"  # the origin of trials that have the times of an earlier toolchain

_SAMPLER_CLASS = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")

TrialState = Literal["timed", "pruned", "failed"]
TRIAL_STATES: tuple[TrialState, ...] = get_args(TrialState)
CacheMode = Literal["hot", "cold"]
CACHE_MODES: tuple[CacheMode, ...] = ("hot", "cold")
MOST_SPREAD = 64  # machines that one search is spread over
FailureClass = Literal["constraint", "compile", "timeout", "crash", "memory", "wrong", "runtime"]

OWN = ("iree+tilewise",)
"""Peers that run our own kernel: rows that ours is not compared with."""

Value = TypeVar("Value")


def option(default: Value, text: str, metavar: str | None = None, *, later: bool = False) -> Value:
    """Declare a field of a request with its option of the command line.

    `later` marks fields that services of the first version do not know.
    """
    made: Value = field(
        default=default, metadata={"help": text, "metavar": metavar, "later": later}
    )
    return made


@dataclass(frozen=True)
class Request:
    """What all requests have; each of their fields is declared by `option`."""

    @classmethod
    def of(cls, *sources: object) -> Self:
        """Return the request whose fields are attributes of a source, such as a job's row.

        Those that are missing, as in lines of archives, or None get their defaults.
        """
        found = {
            one.name: value
            for one in fields(cls)
            for source in sources
            if (value := getattr(source, one.name, None)) is not None
        }
        return cls(**found)

    @property
    def newer(self) -> dict[str, Any]:
        """Return the fields that the first version does not know and that have no default."""
        return {
            one.name: value
            for one in fields(self)
            if one.metadata["later"] and (value := getattr(self, one.name)) != one.default
        }


@dataclass(frozen=True)
class TuneRequest(Request):
    """How much to search and how: the one declaration of these fields.

    The API, the client and the command line read it (CONTRIBUTING.md, "A field of a request").
    """

    trials: int = option(64, "schedules tried", "N")
    seconds: float | None = option(None, "time limit in seconds", "S")
    seed: int = option(0, "seed of sampler and inputs", "I")
    sampler: str = option(
        DEFAULT_SAMPLER, f"one of {', '.join(SAMPLERS)}, or MODULE:CLASS, an Optuna sampler", "NAME"
    )
    peers: bool = option(False, "time OpenBLAS in the same rounds")
    cache: CacheMode = option(  # noqa: RUF009  # a field; Ruff knows imported functions alone
        "hot", "cold: evict operands before every sample"
    )
    spread: int = option(
        1, "machines of a cluster that may share the search; with --server", "N", later=True
    )

    def __post_init__(self) -> None:
        if self.cache not in CACHE_MODES:
            raise BudgetError(f"cache={quoted(self.cache)} is not one of hot, cold", "cache")
        in_a_week = self.seconds is None or 0 < self.seconds <= 7 * 86400
        self._check("trials", 1 <= self.trials <= MOST_TRIALS, f"1 to {MOST_TRIALS}")
        self._check("seconds", in_a_week, "above 0 and up to a week")
        self._check("seed", 0 <= self.seed < 2**32, "0 to 2**32-1")
        self._check("spread", 1 <= self.spread <= MOST_SPREAD, f"1 to {MOST_SPREAD}")
        check_sampler(self.sampler)

    def _check(self, name: str, is_right: bool, limits: str) -> None:
        if not is_right:
            value = quoted(getattr(self, name))
            raise BudgetError(f"{name}={value} is out of range; give {limits}", name)

    def to_json(self) -> dict[str, Any]:
        """Return the request, without newer fields at their defaults.

        Services of the first version can thus read it.
        """
        first = (one.name for one in fields(self) if not one.metadata["later"])
        return {name: getattr(self, name) for name in first} | self.newer


class TuneOptions(TypedDict, total=False):
    """The fields of `TuneRequest` as keyword arguments; missing ones take its defaults."""

    trials: int
    seconds: float | None
    seed: int
    sampler: str
    peers: bool
    cache: str
    spread: int


def check_sampler(name: str) -> None:
    """Raise BudgetError unless `name` may be a sampler; a class is only loaded later."""
    is_class = _SAMPLER_CLASS.fullmatch(name) and len(name) <= LONGEST_SAMPLER
    if name not in SAMPLERS and not is_class:
        raise BudgetError(
            f"sampler={quoted(name)} is not one of {', '.join(SAMPLERS)}, nor a MODULE:CLASS",
            "sampler",
        )


@dataclass(frozen=True)
class Measurement:
    """A median speed with its 95% interval.

    The interval of a single sample, whose spread is unknown, is the speed itself.
    """

    gflops: float
    interval: tuple[float, float]
    time_us: float


@dataclass(frozen=True)
class TrialRecord:
    """One finished trial, as it is stored.

    Attributes:
        state: timed to the end, pruned (stopped early, clearly slower), or failed.
        origin: `prior`, `transfer` (from a near problem) or the sampler's name.
        message: of a failure; or the rms error of a method that is not direct.
        measurement: at speed factor 1; None for failures.
        samples: every time as measured, in seconds.
        speed_factor: of the machine (`tilewise.search.timing.speed_factor`); None, as 1, if no
            control was timed.
        rejected: preempted samples, which count with their thread's time.
        max_error: deviation closest to its tolerance, or the number of wrong integers.
        takes_over: whether it may become the control; not stored.
    """

    number: int
    schedule: "AnySchedule"
    params: dict[str, Any]
    state: TrialState
    origin: str
    failure: FailureClass | None = None
    message: str = ""
    measurement: Measurement | None = None
    samples: tuple[float, ...] = ()
    speed_factor: float | None = None
    rejected: int = 0
    compile_s: float = 0.0
    max_error: float | None = None
    takes_over: bool = False


TimedPoint = tuple[dict[str, Any], float]


@dataclass(frozen=True)
class Earlier:
    """An earlier search, before its trials are read; `key` finds it in its store."""

    key: int
    problem: "Problem"
    target: str
    trials: int


@dataclass(frozen=True)
class Solved:
    """What an earlier search found for a problem.

    Attributes:
        points: its fastest, each with its time in us, fastest first, in the parameters of the space
            of that time.
        slower: others that it tried early, including those that were stopped.
    """

    problem: "Problem"
    target: str
    points: tuple[TimedPoint, ...]
    slower: tuple[TimedPoint, ...] = ()

    @classmethod
    def of(cls, problem: "Problem", target: str, trials: Iterable[TrialRecord]) -> "Solved":
        """Return the fastest `MOST_SOLVED` timed trials, and others of the first trials."""
        ran = [
            (trial.state != "timed", trial.measurement.time_us, trial.number, trial.params)
            for trial in trials
            if trial.measurement and trial.state != "failed"
        ]
        ran.sort(key=lambda trial: trial[:3])
        fastest = [trial for trial in ran[:MOST_SOLVED] if not trial[0]]
        others = [trial for trial in ran[len(fastest) :] if trial[2] < MOST_EARLY]
        points, slower = (
            tuple((params, time_us) for *_, time_us, _, params in some)
            for some in (fastest, others)
        )
        return cls(problem, target, points, slower)


@dataclass(frozen=True)
class Winner:
    """The winner of the final benchmark.

    Attributes:
        peak_gflops: multiply-add peak measured in the same run.
        runners_up: the other finalists, best first.
        scratch_bytes: of the winner's panels, by operand, for all threads together.
        samples, placements: in the winner's median: samples, and placements of the buffers.
        taken, rejected: samples of all finalists, and those that were preempted.
        rounds, disturbed: rounds, and those discarded because everything was slow.
        spread: of the speed factors in the trials, without the outer tenths, as a logarithm.
        cold: how the caches were emptied before each sample; None if they were hot.
        accuracy: rms errors relative to the direct method, by kind of operands; empty if direct.
    """

    schedule: "AnySchedule"
    measurement: Measurement
    peak_gflops: float
    runners_up: "tuple[tuple[AnySchedule, Measurement], ...]" = ()
    scratch_bytes: dict[str, int] = field(default_factory=dict)
    samples: int = 0
    placements: int = 1
    rejected: int = 0
    disturbed: int = 0
    taken: int = 0
    rounds: int = 0
    spread: float = 0.0
    cold: str | None = None
    accuracy: dict[str, float] = field(default_factory=dict)

    @property
    def peak_fraction(self) -> float:
        """Speed over the measured peak."""
        return self.measurement.gflops / self.peak_gflops


@dataclass(frozen=True)
class TuneResult:
    """The result of `tilewise.search.engine.tune.tune`.

    `trials` include those of a resumed job. `finalist_failure` is the last failure of a finalist,
    if any.
    """

    best: Winner | None
    trials: tuple[TrialRecord, ...]
    elapsed_s: float
    complete: bool
    peers: dict[str, Measurement] = field(default_factory=dict)
    finalist_failure: str = ""

    def count(self, state: TrialState) -> int:
        """Return the number of trials in a state."""
        return sum(t.state == state for t in self.trials)


def rescaled(trial: TrialRecord, factor: float) -> TrialRecord:
    """Return the trial as if the machine at factor 1 took `factor` times as long as assumed.

    Its samples stay as measured: its time and its speed factor change.
    """
    if trial.measurement is None:
        return trial
    low, high = trial.measurement.interval
    measurement = Measurement(
        trial.measurement.gflops / factor,
        (low / factor, high / factor),
        trial.measurement.time_us * factor,
    )
    return replace(
        trial, measurement=measurement, speed_factor=(trial.speed_factor or 1.0) / factor
    )


def time_us(trial: TrialRecord) -> float:
    """Return the median time of a trial that ran."""
    assert trial.measurement is not None
    return trial.measurement.time_us
