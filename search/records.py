"""What a search produces: trials, measurements and the result, as frozen values.

Nothing here imports numba or optuna, so that the service and the client stay light.
"""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, get_args

from tilewise.kernels.quoting import quoted
from tilewise.search.errors import BudgetError

if TYPE_CHECKING:  # they take a tenth of a second
    from tilewise.kernels.mlir.tuning_spec.config import AnySchedule
    from tilewise.kernels.problem import Problem

SAMPLERS = ("surrogate", "local", "tpe", "gp", "cmaes", "random", "grid")
DEFAULT_SAMPLER = SAMPLERS[0]
LONGEST_SAMPLER = 200  # characters of a name
MOST_TRIALS = 100_000
MOST_SOLVED = 32  # of the fastest points of an earlier search that are told to another
MOST_EARLY = 128  # of its first trials, of which the slow ones are told too

_SAMPLER_CLASS = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")

TrialState = Literal["timed", "pruned", "failed"]
TRIAL_STATES: tuple[TrialState, ...] = get_args(TrialState)
CacheMode = Literal["hot", "cold"]
CACHE_MODES: tuple[CacheMode, ...] = ("hot", "cold")
MOST_SPREAD = 64  # machines that one search is spread over
FailureClass = Literal["constraint", "compile", "timeout", "crash", "memory", "wrong", "runtime"]

OWN = ("iree+tilewise",)
"""Peers that run our own kernel: rows beside others, which ours is not compared with."""

Value = TypeVar("Value")


def option(default: Value, text: str, metavar: str | None = None, *, later: bool = False) -> Value:
    """Declare a field of a request that the command line has as an option.

    Args:
        default: of the field.
        text: the help of the option.
        metavar: what the help calls its value.
        later: whether services of the first version do not know it.
    """
    made: Value = field(
        default=default, metadata={"help": text, "metavar": metavar, "later": later}
    )
    return made


@dataclass(frozen=True)
class TuneRequest:
    """How much to search and how: the one declaration of these fields.

    The API, the client and the command line read it (CONTRIBUTING.md, "A field of a request").

    Attributes:
        trials: candidates to try, the prior's included.
        seconds: wall-clock bound on the search, or None.
        seed: seed of the sampler and of the random inputs.
        sampler: one of `SAMPLERS`, or `module:Class`, a sampler of Optuna's protocol.
        peers: whether to time other libraries beside the best schedule.
        cache: hot, or cold: with the operands evicted before every sample.
        spread: machines of a cluster that may share the search, at most.
    """

    trials: int = option(64, "schedules tried", "N")
    seconds: float | None = option(None, "for everything", "S")
    seed: int = option(0, "of sampler and inputs", "I")
    sampler: str = option(
        DEFAULT_SAMPLER,
        f"one of {', '.join(SAMPLERS)}, or MODULE:CLASS, a sampler of Optuna's protocol",
        "NAME",
    )
    peers: bool = option(False, "time OpenBLAS in the same rounds")
    cache: CacheMode = option(  # noqa: RUF009  # declares a field
        "hot", "cold: operands are evicted before every sample"
    )
    spread: int = option(
        1, "machines of a cluster that may share the search; with --server", "N", later=True
    )

    def __post_init__(self) -> None:
        if self.cache not in CACHE_MODES:
            raise BudgetError(f"cache={quoted(self.cache)} is not one of hot, cold", "cache")
        if not 1 <= self.trials <= MOST_TRIALS:
            raise BudgetError(
                f"trials={quoted(self.trials)} is out of range; give 1 to {MOST_TRIALS}", "trials"
            )
        if self.seconds is not None and not 0 < self.seconds <= 7 * 86400:
            raise BudgetError(
                f"seconds={self.seconds} is out of range; give above 0 and up to a week", "seconds"
            )
        if not 0 <= self.seed < 2**32:
            raise BudgetError(
                f"seed={quoted(self.seed)} is out of range; give 0 to 2**32-1", "seed"
            )
        if not 1 <= self.spread <= MOST_SPREAD:
            raise BudgetError(
                f"spread={quoted(self.spread)} is out of range; give 1 to {MOST_SPREAD}", "spread"
            )
        check_sampler(self.sampler)

    @classmethod
    def of(cls, source: object) -> "TuneRequest":
        """Return the request whose fields are attributes of `source`, such as a job's row.

        Those that it lacks, as lines of archives do, have their defaults.
        """
        names = [one.name for one in fields(cls) if hasattr(source, one.name)]
        return cls(**{name: getattr(source, name) for name in names})

    def to_json(self) -> dict[str, Any]:
        """Return the request as services of every version know it.

        A field that the first version did not have is left out at its default.
        """
        later = {one.name: one.default for one in fields(self) if one.metadata["later"]}
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in later or value != later[name]
        }


class TuneOptions(TypedDict, total=False):
    """The fields of `TuneRequest` as keyword arguments; those left out have its defaults."""

    trials: int
    seconds: float | None
    seed: int
    sampler: str
    peers: bool
    cache: str
    spread: int


def check_sampler(name: str) -> None:
    """BudgetError unless `name` may be that of a sampler; whether a class is one shows later."""
    is_class = _SAMPLER_CLASS.fullmatch(name) and len(name) <= LONGEST_SAMPLER
    if name not in SAMPLERS and not is_class:
        raise BudgetError(
            f"sampler={quoted(name)} is not one of {', '.join(SAMPLERS)}, nor a MODULE:CLASS",
            "sampler",
        )


@dataclass(frozen=True)
class Measurement:
    """A speed with its 95% interval.

    Attributes:
        gflops: from the median time.
        interval: gflops at the ends of the 95% interval of the median; of one sample, whose
            spread nobody knows, both are `gflops`.
        time_us: median wall time of one execution, microseconds.
    """

    gflops: float
    interval: tuple[float, float]
    time_us: float


@dataclass(frozen=True)
class TrialRecord:
    """One finished trial, as it is stored.

    Attributes:
        number: 0, 1, ... within the job.
        schedule: what was tried.
        params: the point of the search space that gave the schedule.
        state: timed (to the end), pruned (stopped early, clearly slower), or failed.
        origin: `prior`, `transfer` (from a near problem) or the sampler's name.
        failure: class of the failure, None unless failed.
        message: what happened, for failures; of a method that is not direct, its rms error.
        measurement: None for failures; at pace 1.
        samples: every time, in seconds, as it was.
        pace: how many times longer than on the undisturbed machine everything took meanwhile;
            None, taken for 1, where no control was timed (`tilewise.search.timing.speed_factor`).
        rejected: samples that were preempted; their thread's time counts.
        compile_s: seconds until the candidate could run.
        max_error: deviation from the reference where it is closest to its tolerance, or the
            number of wrong elements for integers.
        takes_over: whether it may be the control of those that follow; not stored.
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
    pace: float | None = None
    rejected: int = 0
    compile_s: float = 0.0
    max_error: float | None = None
    takes_over: bool = False


TimedPoint = tuple[dict[str, Any], float]


@dataclass(frozen=True)
class Earlier:
    """An earlier search, before one knows whether its trials are worth reading.

    Attributes:
        key: by which its store finds it.
        target: canonical, such as `cpu:znver4,threads=1`.
        trials: how many ran.
    """

    key: int
    problem: "Problem"
    target: str
    trials: int


@dataclass(frozen=True)
class Solved:
    """What an earlier search has found for a problem.

    Attributes:
        target: canonical, such as `cpu:znver4,threads=1`.
        points: its fastest, in the parameters of the space of their time, each with its time in
            us; the fastest first.
        slower: the others that it tried early, those that were stopped included.
    """

    problem: "Problem"
    target: str
    points: tuple[TimedPoint, ...]
    slower: tuple[TimedPoint, ...] = ()

    @classmethod
    def of(cls, problem: "Problem", target: str, trials: Iterable[TrialRecord]) -> "Solved":
        """The fastest `MOST_SOLVED` that were timed to the end, and others of the first trials."""
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
class Best:
    """The winner after the finalists were timed again in interleaved rounds.

    Attributes:
        peak_gflops: the FMA (or multiply-add) peak measured in the same run.
        runners_up: the other finalists, best first, each with its measurement.
        scratch_bytes: of the winner's panels, by operand, for all threads together.
        samples: how many the winner's median is of.
        placements: of the buffers, in all processes, over which they were taken.
        rejected: samples of all finalists that were preempted; their thread's time counts.
        disturbed: rounds that count for no median, because everything was slow in them.
        taken: samples of all finalists, of which `rejected` were preempted.
        rounds: of the finals, of which `disturbed` were slow.
        spread: how far the machine's pace went up and down in the trials, the outer tenths left
            out, as a logarithm; 0 where few paces are known.
        cold: how the caches were emptied before each sample; None if they were hot.
        accuracy: the winner's rms errors in those of the direct method, by the kind of operands
            (`tilewise.kernels.oracle.accuracy`); none if it is direct.
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
    """What `tilewise.search.engine.tune.tune` returns.

    Attributes:
        best: None when no candidate ran.
        peers: speed of each peer asked for and present, timed in the same rounds.
        trials: every finished trial of the job, the resumed ones included.
        elapsed_s: wall time of this call.
        complete: whether the whole budget was spent.
        finals_failure: the last failure of a finalist; empty where none failed.
    """

    best: Best | None
    trials: tuple[TrialRecord, ...]
    elapsed_s: float
    complete: bool
    peers: dict[str, Measurement] = field(default_factory=dict)
    finals_failure: str = ""

    def count(self, state: TrialState) -> int:
        """Number of trials that ended in `state`."""
        return sum(t.state == state for t in self.trials)


def rescaled(trial: TrialRecord, factor: float) -> TrialRecord:
    """Return the trial as it is if the machine at pace 1 takes `factor` times as long as assumed.

    Its samples stay as they were measured: its time and its pace change.
    """
    if trial.measurement is None:
        return trial
    low, high = trial.measurement.interval
    measurement = Measurement(
        trial.measurement.gflops / factor,
        (low / factor, high / factor),
        trial.measurement.time_us * factor,
    )
    return replace(trial, measurement=measurement, pace=(trial.pace or 1.0) / factor)


def time_us(trial: TrialRecord) -> float:
    """The median time of a trial that ran."""
    assert trial.measurement is not None
    return trial.measurement.time_us
