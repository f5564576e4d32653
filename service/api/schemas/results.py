"""The HTTP API's responses, as OpenAPI shows them: stored schedules, their proofs and files."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

from tilewise.search.final_benchmark.quality import Quality
from tilewise.search.records import CacheMode
from tilewise.service.api.schemas.errors import RefusedView
from tilewise.service.results.nearest import Kind

Flavor = Literal["cpu", "air", "iree", "iree-spec"]
ProblemKey = Annotated[str, StringConstraints(pattern="^[0-9A-Za-z]*$", max_length=64)]
"""A problem's SHA-256 in a path; other letters and digits are the key of no problem."""


class TrialCounts(BaseModel):
    """How many trials were asked for, and how those that ended did."""

    asked: int
    timed: int
    pruned: int
    failed: int


class MeasuredView(BaseModel):
    """How a speed was had: samples, how many were preempted (`rejected`), placements.

    `disturbed` rounds count for no median, for everything was slow in them. `cold` says what
    emptied the caches before each sample, null when they were hot. `accuracy` has the rms errors
    in those of the direct method, by the kind of operands; null for a direct schedule.
    """

    samples: int
    placements: int
    rejected: int
    disturbed: int = 0
    cold: str | None
    accuracy: dict[str, float] | None = None


class FiniteView(BaseModel):
    """What holds numbers of the database; JSON has no infinite ones."""

    model_config = ConfigDict(allow_inf_nan=False)


class BestView(FiniteView):
    """A schedule with its speed; `peak_fraction` is null while the search runs.

    `scratch_bytes` are those of the panels of A and of B, of all threads together. `instruction`
    multiplies and adds in the native kernel; it is null where neither the steps nor the features of
    the machine tell. `quality` says whether the interval is narrow enough for the speed to mean
    something; null while the search runs. `grade` is `proven` where a script of the result is
    proven on real MLIR.
    """

    hash: str
    steps: list[dict[str, Any]]
    instruction: str | None = None
    gflops: float
    interval: tuple[float, float] | None
    time_us: float | None
    peak_fraction: float | None
    scratch_bytes: dict[str, int] | None = None
    measured: MeasuredView | None = None
    quality: Quality | None = None
    grade: Literal["proven", "measured"] | None = None


class PastView(FiniteView):
    """A result that a later one has replaced, or that was measured and not kept."""

    state: Literal["superseded", "not_kept"]
    hash: str
    gflops: float
    interval: tuple[float, float]
    time_us: float
    quality: Quality
    job: int
    created: datetime
    ended: datetime


class ProofView(BaseModel):
    """What the transform script did on real MLIR.

    `reason` says why a script of another schedule than the best one is served; null where it is
    the best one's, where nothing is known, and in look-ups.

    `by` is the machine of the cluster's worker that reports the proof: the service made the script
    of its steps again, and did not run it. It is null if a process of this service ran it.
    """

    applied: bool
    executed: bool
    max_error: float | None
    tolerance: float | None
    gflops: float | None
    interval: tuple[float, float] | None
    time_us: float | None
    mlir: str
    failure: str | None
    message: str
    reason: str | None = None
    hash: str | None
    sha256: str | None
    by: str | None = None


class SpaceView(BaseModel):
    """How many different legal schedules there are; `exact` when they were counted."""

    schedules: int
    exact: bool


class DifferenceView(BaseModel):
    """What was asked for, and what is given in its place."""

    asked: str
    given: str


class MatchView(BaseModel):
    """How near a result is to what was asked for.

    `exact`: of the target and of the present toolchain; `toolchain`: of another toolchain;
    `processor`: of a processor whose kernels the asked one can run. `differs` names target and
    toolchain where they are not those asked for. `reason` says how the features differ, null where
    they do not.
    """

    kind: Kind
    differs: dict[Literal["target", "toolchain"], DifferenceView]
    reason: str | None = None


class MachineView(FiniteView):
    """The machine that a schedule was timed on.

    `caches` are bytes of its data caches by level. `peaks` are multiply-add peaks of one thread in
    GFLOP/s by dtype, and `bandwidth_gbs` is what one thread reads from memory: empty and null until
    they were measured.
    """

    host: str
    cpu: str
    cores: int
    caches: dict[str, int]
    peaks: dict[str, float]
    bandwidth_gbs: float | None


class ResultView(BaseModel):
    """The best schedule of a problem; `stale` when it belongs to another toolchain.

    `previous` is the newest result of the same work that is not the best: null where there is none,
    and in look-ups.
    """

    problem: str
    key: str
    target: str
    cache: CacheMode
    toolchain: str
    machine: MachineView | None = None
    trials: TrialCounts
    space: SpaceView | None = None
    elapsed_s: float
    best: BestView
    peers: dict[str, dict[str, Any]]
    proof: ProofView | None
    complete: bool
    previous: PastView | None = None
    stale: bool
    match: MatchView
    created: datetime


class FileView(BaseModel):
    """A script or a kernel; `etag` is null for one that is made when it is first asked for."""

    etag: str | None
    path: str


class ObjectProofView(BaseModel):
    """How far an object was off, linked and run, and how far it might be."""

    max_error: float
    tolerance: float


class ObjectView(BaseModel):
    """A kernel for programs that link it; `object` and `bitcode` are base64."""

    problem: str
    target: str
    schedule: str
    symbol: str
    alias: str
    features: list[str]
    scratch_bytes: int
    packed_bytes: int
    parts: int
    toolchain: str
    gflops: float
    header: str
    object: str
    bitcode: str
    proof: ObjectProofView


class FoundView(BaseModel):
    """A problem as it is normalised, and its best schedule.

    `schedule` is null when none is stored, when what is stored is refused, as `error` says, and
    when each of the `files` that were asked for is `unchanged`. A file is null that is not
    stored, or was not proven. `target` is what was asked for.
    """

    problem: str
    key: str
    schedule: ResultView | None
    error: RefusedView | None = None
    unchanged: bool = False
    files: dict[str, FileView | None] = {}
    target: str = ""


class LookupView(BaseModel):
    """The answers of a look-up, in the order in which they were asked for."""

    target: str
    toolchain: str
    schedules: list[FoundView]
