"""The lines of an archive: one class per member, with the columns of the tables.

Rows refer to each other by what they are, and not by the numbers of one database: a problem by
its canonical string, a machine by its host, a job by its `name`.
"""

from math import prod
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import ProblemRange, from_plain, parse_problem, parse_range
from tilewise.schema.base import JobState
from tilewise.search.errors import BudgetError
from tilewise.search.ranges.result import RangeResult
from tilewise.search.records import (
    LONGEST_SAMPLER,
    MOST_SPREAD,
    FailureClass,
    TrialState,
    TuneRequest,
)
from tilewise.service.api.requests import printable
from tilewise.service.api.suite_reports import SuiteReport
from tilewise.service.archive import fields

MOST_OPS = 100_000  # of one model

Sampler = Annotated[str, Field(max_length=LONGEST_SAMPLER), AfterValidator(printable)]


def require_interval(low: float | None, high: float | None) -> None:
    """Raise ValueError for an interval whose ends are in the wrong order."""
    if low is not None and high is not None and low > high:
        raise ValueError(f"its interval {low:g} to {high:g} ends before it begins")


class ProblemLine(fields.Line):
    """A problem, and when it was first requested."""

    problem: fields.Problem
    created_at: fields.Moment


class ToolchainLine(fields.Line):
    """The compilers and the generator that results belong to, and when they were first seen."""

    toolchain: fields.Toolchain
    created_at: fields.Moment


class MachineLine(fields.Line):
    """A machine that has timed something."""

    host: fields.Host
    cpu: fields.Name
    cores: fields.Count
    memory_bytes: Annotated[int, Field(ge=0, lt=2**63)]
    caches: fields.Sizes
    features: fields.Features | None
    peaks: fields.Speeds | None
    bandwidth_gbs: fields.Speed | None
    peaks_at: fields.Moment | None
    seen_at: fields.Moment


class JobLine(fields.Line):
    """A search.

    `job` is its name in every store, from `name_of`; `elapsed_s` counts all runs, up to the last
    heartbeat of a running one.
    """

    job: fields.Sha256
    problem: fields.Problem
    target: fields.Target
    toolchain: fields.Toolchain
    cache: fields.Cache
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    created_at: fields.Moment
    trials: fields.Count
    seconds: fields.Seconds | None
    sampler: Sampler
    peers: bool
    state: JobState
    host: fields.Host | None
    crashes: fields.Count
    elapsed_s: fields.Seconds
    complete: bool | None
    error: fields.Text | None
    started_at: fields.Moment | None
    finished_at: fields.Moment | None
    phase: Annotated[str, Field(max_length=32), AfterValidator(printable)] | None
    phase_done: fields.Count | None
    phase_total: fields.Count | None
    kind: Literal["tune", "recheck"] = "tune"
    spread: Annotated[int, Field(ge=1, le=MOST_SPREAD)] = 1

    @model_validator(mode="after")
    def _is_named_so(self) -> "JobLine":
        if self.job != name_of(self):
            raise ValueError("job is not the name of the requested work")
        if self.state in ("queued", "running"):  # it may be queued again
            try:
                TuneRequest.of(self)
            except BudgetError as error:
                raise ValueError(str(error)) from error
        return self


def name_of(job: JobLine) -> str:
    """Return the name of a job that is the same in all databases.

    No store has two active jobs for the same work, so no two jobs for it were created at the
    same microsecond. A budget is no part of the name: a job that waits may get a larger one.
    """
    work = (job.problem, job.target, job.toolchain, job.cache, job.seed)
    return fields.digest_of([*work, job.created_at.isoformat(timespec="microseconds")])


class TrialLine(fields.Line):
    """A finished trial of a job; `samples` are wall times in seconds, float64 as base64."""

    job: fields.Sha256
    number: fields.Count
    hash: fields.Hash
    steps: fields.Steps
    params: fields.Params
    state: TrialState
    origin: Sampler
    failure: FailureClass | None
    message: fields.Text
    gflops: fields.Speed | None
    low: fields.Speed | None
    high: fields.Speed | None
    time_us: fields.Micros | None
    samples: fields.Samples
    samples_taken: fields.Count | None
    pace: Annotated[float, Field(gt=0, le=1e9)] | None
    rejected: fields.Count
    compile_s: fields.Seconds
    max_error: fields.Deviation
    created_at: fields.Moment

    @model_validator(mode="after")
    def _is_a_trial(self) -> "TrialLine":
        if not fields.is_named(self.hash, self.steps):
            raise ValueError("its steps do not have its hash")
        speed = (self.gflops, self.low, self.high, self.time_us)
        if None in speed and self.state != "failed":
            raise ValueError(f"it is {self.state} without a speed")
        require_interval(self.low, self.high)
        return self


class ScriptLine(fields.Line):
    """A transform script and its schedule."""

    flavor: Annotated[str, Field(max_length=16), AfterValidator(printable)]
    hash: fields.Hash
    steps: fields.Steps
    text: fields.Text
    sha256: fields.Sha256
    created_at: fields.Moment


class ProofLine(fields.Line):
    """The proof of a script; `script` is None if none was generated."""

    ok: bool
    applied: bool
    executed: bool
    max_error: fields.Deviation
    tolerance: Annotated[float, Field(ge=0)] | None
    gflops: fields.Speed | None
    low: fields.Speed | None
    high: fields.Speed | None
    time_us: fields.Micros | None
    mlir: Annotated[str, Field(max_length=100), AfterValidator(printable)]
    failure: fields.Name | None
    message: fields.Text
    digest: fields.Sha256
    created_at: fields.Moment
    script: ScriptLine | None

    @model_validator(mode="after")
    def _proves_something(self) -> "ProofLine":
        if self.ok and not (self.applied and self.executed and self.script is not None):
            raise ValueError("it proves a script that was not executed, or none")
        require_interval(self.low, self.high)
        return self


class ScheduleLine(fields.Line):
    """The best schedule of a problem on a target under a toolchain, with its proofs.

    `digest` is a store's, with the job's name in place of its number.
    """

    job: fields.Sha256
    problem: fields.Problem
    target: fields.Target
    toolchain: fields.Toolchain
    cache: fields.Cache
    host: fields.Host
    hash: fields.Hash
    steps: fields.Steps
    gflops: fields.Speed
    low: fields.Speed
    high: fields.Speed
    time_us: fields.Micros
    peak_gflops: fields.Speed
    scratch_bytes: fields.Sizes | None
    peers: Annotated[dict[str, fields.Column], Field(max_length=100)] | None
    measured: fields.Column | None
    budget: fields.Count
    elapsed_s: fields.Seconds
    complete: bool
    digest: fields.Sha256
    created_at: fields.Moment
    proofs: Annotated[list[ProofLine], Field(max_length=1000)]

    @model_validator(mode="after")
    def _peers_have_speeds(self) -> "ScheduleLine":
        for name, speed in (self.peers or {}).items():
            found = speed.get("gflops")
            if not isinstance(found, float | int) or not found > 0:
                raise ValueError(f"its peer {name!r:.40} has no gflops above 0")
        require_interval(self.low, self.high)
        return self


class PastLine(ScheduleLine):
    """A result that was the best until `ended_at`, or never was; it has no proofs."""

    was_best: bool
    ended_at: fields.Moment


class SuiteLine(fields.Line):
    """A report of `tilewise bench`, whole."""

    report: fields.Document
    created_at: fields.Moment

    @model_validator(mode="after")
    def _is_a_report(self) -> "SuiteLine":
        SuiteReport.checked(self.report)
        return self


class ModelLine(fields.Line):
    """A whole model.

    `problems` have at least `problem`, `count` and `where`; `skipped` have `op` and `reason`.
    """

    sha256: fields.Sha256
    target: fields.Target
    toolchain: fields.Toolchain
    trials: fields.Count
    cache: fields.Cache
    problems: Annotated[list[fields.Document], Field(max_length=MOST_OPS)]
    skipped: Annotated[list[fields.Document], Field(max_length=MOST_OPS)]
    created_at: fields.Moment

    @model_validator(mode="after")
    def _has_problems(self) -> "ModelLine":
        for found in self.problems:
            count = found.get("count")
            if not isinstance(found.get("problem"), str) or type(count) is not int or count < 1:
                raise ValueError("one of its problems has no problem or no count")
            parse_problem(found["problem"])
        return self


class RangeLine(fields.Line):
    """The variants that serve a range of sizes on a target under a toolchain.

    `digest` is a store's, with 0 in place of the number of the job.
    """

    problem: fields.Range
    target: fields.Target
    toolchain: fields.Toolchain
    cache: fields.Cache
    host: fields.Host
    family: fields.Sha256
    result: fields.Column
    loss_mean: float
    loss_worst: float
    budget: fields.Count
    elapsed_s: fields.Seconds
    digest: fields.Sha256
    created_at: fields.Moment

    @model_validator(mode="after")
    def _serves_each_size(self) -> "RangeLine":
        try:
            problems = parse_range(self.problem)
            _check_spans(problems, self.result["spans"])
            found = RangeResult.from_json(problems, self.result)
            if not all(min(tile) > 0 for tile in found.tiles) or found.loss.worst < -1:
                raise ValueError("tiles are above 0")
        except (KernelsError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"its result cannot be read: {error!r:.200}") from error
        return self


def _check_spans(problems: ProblemRange, spans: list[Any]) -> None:
    """Raise ValueError for spans outside of the range or with more sizes, which are not listed."""
    held = 0
    for span in spans:
        ends = zip(*map(from_plain, span[:2]), problems.ranges, strict=True)
        held += prod(one.index(last) - one.index(first) + 1 for first, last, one in ends)
        if held > len(problems.sizes):
            raise ValueError("the spans hold a size twice")


MEMBERS: dict[str, type[fields.Line]] = {
    "problems.jsonl": ProblemLine,
    "toolchains.jsonl": ToolchainLine,
    "machines.jsonl": MachineLine,
    "jobs.jsonl": JobLine,
    "trials.jsonl": TrialLine,
    "schedules.jsonl": ScheduleLine,
    "history.jsonl": PastLine,
    "suites.jsonl": SuiteLine,
    "models.jsonl": ModelLine,
    "ranges.jsonl": RangeLine,
}
"""The members of an archive, in the order in which they are written and read."""

SINCE = {"history.jsonl": 2, "ranges.jsonl": 5}
"""The format that brought a member, where that is not the first."""
