"""What the lines of an archive hold: one class for each member, in the words of the tables.

Rows refer to each other by what they are, and not by the numbers of one database: a problem by
its canonical string, a machine by its host, a job by its `name`.
"""

from typing import Annotated, Any

from pydantic import Field, model_validator

from kernels.problem import parse_problem
from search.records import LONGEST_SAMPLER, FailureClass, TrialState
from service.api.schemas.suites import SuiteReport
from service.archive.fields import (
    Base64,
    Cache,
    Count,
    Deviation,
    Hash,
    Host,
    Line,
    Moment,
    Problem,
    Sha256,
    Steps,
    Target,
    Toolchain,
    digest_of,
    is_named,
)
from service.db.models import JobState

BYTES_OF_SAMPLE = 8


class ProblemLine(Line):
    """A problem, and when it was first asked for."""

    problem: Problem
    created_at: Moment


class ToolchainLine(Line):
    """The compilers and the generator that results belong to, and when they were first seen."""

    toolchain: Toolchain
    created_at: Moment


class MachineLine(Line):
    """A machine that has timed something."""

    host: Host
    cpu: Annotated[str, Field(max_length=64)]
    cores: Count
    memory_bytes: Annotated[int, Field(ge=0, lt=2**63)]
    caches: dict[str, int]
    features: list[str] | None
    peaks: dict[str, float] | None
    bandwidth_gbs: float | None
    peaks_at: Moment | None
    seen_at: Moment


class JobLine(Line):
    """A search that somebody asked for.

    Attributes:
        job: its name, the same in every store: `name_of` what was asked, and when.
        elapsed_s: seconds of all runs, of one that goes on up to its last sign.
    """

    job: Sha256
    problem: Problem
    target: Target
    toolchain: Toolchain
    cache: Cache
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    created_at: Moment
    trials: Count
    seconds: float | None
    sampler: Annotated[str, Field(max_length=LONGEST_SAMPLER)]
    peers: bool
    state: JobState
    host: Host | None
    crashes: Count
    elapsed_s: float
    complete: bool | None
    error: str | None
    started_at: Moment | None
    finished_at: Moment | None
    phase: Annotated[str, Field(max_length=32)] | None
    phase_done: Count | None
    phase_total: Count | None

    @model_validator(mode="after")
    def _is_named_so(self) -> "JobLine":
        if self.job != name_of(self):
            raise ValueError("job is not the name of what was asked for")
        return self


def name_of(job: JobLine) -> str:
    """What names a job in every store: the work, the seed, and the moment when it was asked for.

    No store has two active jobs for the same work, so no two jobs for it were asked for at the
    same microsecond. A budget is no part of the name: a job that waits may get a larger one.
    """
    asked = (job.problem, job.target, job.toolchain, job.cache, job.seed)
    return digest_of([*asked, job.created_at.isoformat(timespec="microseconds")])


class TrialLine(Line):
    """A finished trial of a job.

    Attributes:
        samples: wall times in seconds, little-endian float64, as base64.
    """

    job: Sha256
    number: Count
    hash: Hash
    steps: Steps
    params: dict[str, int | str | bool]
    state: TrialState
    origin: Annotated[str, Field(max_length=LONGEST_SAMPLER)]
    failure: FailureClass | None
    message: str
    gflops: float | None
    low: float | None
    high: float | None
    time_us: float | None
    samples: Base64
    samples_taken: Count | None
    pace: float | None
    rejected: Count
    compile_s: float
    max_error: Deviation
    created_at: Moment

    @model_validator(mode="after")
    def _is_a_trial(self) -> "TrialLine":
        if not is_named(self.hash, self.steps):
            raise ValueError("its steps do not have its hash")
        if len(self.samples) % BYTES_OF_SAMPLE:
            raise ValueError("samples are not whole numbers of 8 bytes")
        speed = (self.gflops, self.low, self.high, self.time_us)
        if None in speed and self.state != "failed":
            raise ValueError(f"it is {self.state} without a speed")
        if any(value is not None and value <= 0 for value in (*speed, self.pace)):
            raise ValueError("its time, its speed or its pace is not above 0")
        return self


class ScriptLine(Line):
    """A transform script, and what it spells."""

    flavor: Annotated[str, Field(max_length=16)]
    hash: Hash
    steps: Steps
    text: str
    sha256: Sha256
    created_at: Moment


class ProofLine(Line):
    """What became of a script on real MLIR.

    Attributes:
        digest: as the store has it, of what the proof claims and of its script.
        script: None where none came about.
    """

    ok: bool
    applied: bool
    executed: bool
    max_error: Deviation
    tolerance: float | None
    gflops: float | None
    low: float | None
    high: float | None
    time_us: float | None
    mlir: Annotated[str, Field(max_length=100)]
    failure: Annotated[str, Field(max_length=64)] | None
    message: str
    digest: Sha256
    created_at: Moment
    script: ScriptLine | None

    @model_validator(mode="after")
    def _proves_something(self) -> "ProofLine":
        if self.ok and not (self.applied and self.executed and self.script is not None):
            raise ValueError("it proves a script that was not executed, or none")
        return self


class ScheduleLine(Line):
    """The best schedule of a problem on a target under a toolchain, with its proofs.

    Attributes:
        job: the name of the job that found it.
        host: the machine that timed it.
        digest: as a store's, with the job's name in the place of its number.
    """

    job: Sha256
    problem: Problem
    target: Target
    toolchain: Toolchain
    cache: Cache
    host: Host
    hash: Hash
    steps: Steps
    gflops: float
    low: float
    high: float
    time_us: float
    peak_gflops: float
    scratch_bytes: dict[str, int] | None
    peers: dict[str, dict[str, Any]] | None
    measured: dict[str, Any] | None
    budget: Count
    elapsed_s: float
    complete: bool
    digest: Sha256
    created_at: Moment
    proofs: list[ProofLine]

    @model_validator(mode="after")
    def _peers_have_speeds(self) -> "ScheduleLine":
        for name, speed in (self.peers or {}).items():
            if not isinstance(speed.get("gflops"), float | int):
                raise ValueError(f"its peer {name!r:.40} has no gflops")
        return self


class PastLine(ScheduleLine):
    """A result that was replaced, or that was measured and not kept; it has no proofs any more.

    Attributes:
        was_best: whether it was the best until it was replaced.
        ended_at: when it was replaced, or not kept.
    """

    was_best: bool
    ended_at: Moment


class SuiteLine(Line):
    """A report of `tilewise bench`, whole."""

    report: dict[str, Any]
    created_at: Moment

    @model_validator(mode="after")
    def _is_a_report(self) -> "SuiteLine":
        SuiteReport.checked(self.report)
        return self


class ModelLine(Line):
    """A model that was asked for as one.

    Attributes:
        problems: objects of at least `problem`, `count` and `where`.
        skipped: objects of at least `op` and `reason`.
    """

    sha256: Sha256
    target: Target
    toolchain: Toolchain
    trials: Count
    cache: Cache
    problems: list[dict[str, Any]]
    skipped: list[dict[str, Any]]
    created_at: Moment

    @model_validator(mode="after")
    def _has_problems(self) -> "ModelLine":
        for found in self.problems:
            if not isinstance(found.get("problem"), str) or not isinstance(found.get("count"), int):
                raise ValueError("one of its problems has no problem or no count")
            parse_problem(found["problem"])
        return self


MEMBERS: dict[str, type[Line]] = {
    "problems.jsonl": ProblemLine,
    "toolchains.jsonl": ToolchainLine,
    "machines.jsonl": MachineLine,
    "jobs.jsonl": JobLine,
    "trials.jsonl": TrialLine,
    "schedules.jsonl": ScheduleLine,
    "history.jsonl": PastLine,
    "suites.jsonl": SuiteLine,
    "models.jsonl": ModelLine,
}
"""The members of an archive, in the order in which they are written and read."""

SINCE = {"history.jsonl": 2}
"""The format that brought a member, where that is not the first."""
