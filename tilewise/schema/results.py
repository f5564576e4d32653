"""Stored schedules, their proofs and files, jobs and trials."""

import base64
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from tilewise.schema.base import (
    NAME,
    Finite,
    Interval,
    JobState,
    Json,
    MatchKind,
    Reply,
    Work,
    older,
)
from tilewise.search.final_benchmark.quality import Quality
from tilewise.search.records import CacheMode, TrialState
from tilewise.search.space.points import TileKind


@dataclass(frozen=True, kw_only=True)
class TrialCounts:
    """How many trials were requested, and how those that ended did."""

    asked: int
    timed: int = older(0)
    pruned: int = older(0)
    failed: int = older(0)

    @property
    def ended(self) -> int:
        """How many have ended."""
        return self.timed + self.pruned + self.failed


@dataclass(frozen=True)
class Phase:
    """The phase of a run and its progress; `total` is 0 if unknown."""

    name: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How a speed was measured: samples, how many were preempted (`rejected`), placements.

    `disturbed` rounds were slow for everything and count in no median. `cold` says what emptied the
    caches before each sample, null when they were hot. `accuracy` has rms errors relative to the
    direct method, by the kind of operands; null for a direct schedule.
    """

    samples: int
    placements: int
    rejected: int
    disturbed: int = 0
    cold: str | None
    accuracy: dict[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Best(Finite):
    """A schedule with its speed in GFLOP/s and the 95% interval.

    `interval`, `peak_fraction` and `quality` are null while the search runs. `scratch_bytes` are
    those of the panels of A and of B, of all threads together. `instruction` is that of the native
    kernel, null where unknown. `quality` says whether the interval is narrow enough. `grade` is
    `proven` where a script of the result is proven on real MLIR, and `predicted` for a time that is
    estimated between the samples of a range.
    """

    hash: str
    steps: tuple[Json, ...]
    instruction: str | None = None
    gflops: float
    interval: Interval | None
    time_us: float | None
    peak_fraction: float | None
    scratch_bytes: dict[str, int] | None = None
    measured: Annotated[Json | None, Measured | None] = None
    quality: Annotated[str | None, Quality | None] = None
    grade: Annotated[str | None, Literal["proven", "measured", "predicted"] | None] = None


@dataclass(frozen=True, kw_only=True)
class Past(Finite):
    """A result that is no longer the best, or never was."""

    state: Annotated[str, Literal["superseded", "not_kept"]]
    hash: str
    gflops: float
    interval: Interval
    time_us: float
    quality: Annotated[str, Quality]
    job: int
    created: datetime
    ended: datetime


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another library's speed in GFLOP/s, in the same rounds."""

    gflops: float
    interval: Interval | None = None
    time_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The proof of the transform script on real MLIR.

    `failure` and `message` say why the script is not served, `reason` why it is of another schedule
    than the best one; null where it is of the best one, where unknown, and in look-ups.

    `by` is the cluster's machine that reports the proof; the service made the script again from its
    steps and did not run it. It is null if a process of this service ran it.
    """

    applied: bool
    executed: bool
    max_error: float | None
    tolerance: float | None
    gflops: float | None
    interval: Interval | None
    time_us: float | None
    mlir: str
    failure: str | None
    message: str
    reason: str | None = None
    hash: str | None
    steps: tuple[Json, ...] | None = older(None)
    sha256: str | None = older(None)
    by: str | None = None


@dataclass(frozen=True)
class SpaceSize:
    """How many schedules there are at most: several points of the space can mean one schedule."""

    schedules: int
    exact: bool


@dataclass(frozen=True)
class Difference:
    """What was requested and what is returned instead."""

    asked: str
    given: str


@dataclass(frozen=True, kw_only=True)
class Match:
    """How near a result is to what was requested.

    `exact`: of the target and of the present toolchain; `toolchain`: of another toolchain;
    `processor`: of a processor whose kernels the requested one can run; `range`: the variant of a
    tuned `range` that contains the problem. `differs` names target and toolchain where they differ,
    `reason` how the features do, if so.
    """

    kind: Annotated[str, MatchKind]
    differs: Annotated[dict[str, Difference], dict[Literal["target", "toolchain"], Difference]]
    reason: str | None = None
    range: str | None = None


@dataclass(frozen=True, kw_only=True)
class Machine(Finite):
    """The machine that timed a schedule.

    `cores` are processors that a job may run on. `caches` are bytes of its data caches by level.
    `peaks` are multiply-add peaks of one thread in GFLOP/s by dtype, and `bandwidth_gbs` is what
    one thread reads from memory: empty and null until they were measured.
    """

    host: str
    cpu: str
    cores: Annotated[int | None, int] = older(None)
    caches: dict[str, int] = older({})
    peaks: dict[str, float] = older({})
    bandwidth_gbs: float | None = older(None)


@dataclass(frozen=True, kw_only=True)
class StoredResult(Reply):
    """The best schedule of a problem; `stale` when it belongs to another toolchain.

    `complete` says whether the whole budget was spent. `previous` is the newest result of the same
    work that is not the best: null where there is none, and in look-ups. `origin` is the publisher
    of an imported archive that named one.
    """

    problem: str
    key: str
    target: str
    cache: Annotated[str, CacheMode]
    toolchain: str
    machine: Machine | None = None
    origin: str | None = None
    trials: TrialCounts
    space: SpaceSize | None = None
    elapsed_s: float
    best: Best
    peers: Annotated[dict[str, Peer], dict[str, dict[str, Any]]]
    proof: Proof | None
    complete: bool
    previous: Past | None = None
    stale: bool
    match: Annotated[Match | None, Match] = older(None)
    created: Annotated[datetime | None, datetime] = older(None)


@dataclass(frozen=True, kw_only=True)
class Job(Reply, Work):
    """A job, and its best so far; `phase` is null before its first run.

    `unserved_since` is when it began to wait without a live worker of the cluster for its target,
    null otherwise. `spread` is how many machines may share the search, `helpers` how many do now.
    `kept` says whether the result of a finished job replaced the stored one; null where unknown.
    `verdict` is of a finished job of kind `recheck`, against the result of the earlier toolchain.
    """

    id: int
    kind: str = older("tune")
    state: Annotated[str, JobState]
    problem: str
    key: str
    target: str
    cache: Annotated[str, CacheMode]
    toolchain: str
    trials: TrialCounts
    elapsed_s: float
    phase: Phase | None = older(None)
    best: Best | None
    kept: bool | None = None
    verdict: str | None = None
    error: str | None
    complete: bool | None
    spread: int = 1
    helpers: int = 0
    unserved_since: datetime | None = None
    created: Annotated[datetime | None, datetime] = older(None)
    started: datetime | None = older(None)
    finished: datetime | None = older(None)
    links: dict[str, str] = older({})


@dataclass(frozen=True, kw_only=True)
class Tile(Finite):
    """The register tile of a trial.

    `vectors` counts vectors of a row of the result, and single columns of a `split` or `iree` tile.
    A `split` tile adds up each element in `partial_sums` vectors along k. A `sweep` reads `depth`
    rows of B at once, its k-block, from `streams` parts of k. A `matrix` tile is a grid of AMX
    tiles.
    """

    rows: int
    vectors: int
    kind: TileKind
    partial_sums: int
    depth: int
    streams: int
    description: str


@dataclass(frozen=True, kw_only=True)
class Trial(Reply, Finite):
    """One finished trial.

    `tile` is the register tile of `params` as an object, null where they have none. `pace` is the
    machine's speed factor, null where unknown; `time_us` is the median of `samples_us` over it.
    `samples_taken` is how many samples there were before `tilewise db prune` thinned them, null
    where all are there. `interval` is null for one sample.
    """

    number: int
    hash: str
    steps: tuple[Json, ...]
    params: Json
    tile: Annotated[Json | None, Tile | None] = older(None)
    state: Annotated[str, TrialState]
    origin: str
    failure: str | None
    message: str
    gflops: float | None
    interval: Interval | None
    time_us: float | None
    samples_us: tuple[float, ...]
    samples_taken: int | None = None
    pace: float | None
    cache: Annotated[str, CacheMode]
    rejected: int
    compile_s: float
    max_error: float | None
    created: Annotated[datetime | None, datetime] = older(None)


@dataclass(frozen=True, kw_only=True)
class StoredTrial(Trial):
    """One finished trial with its job and work."""

    job: int
    problem: str
    target: str
    toolchain: str


@dataclass(frozen=True)
class File:
    """A script or a kernel; `etag` is null until it is first made."""

    etag: str | None
    path: str


@dataclass(frozen=True)
class Refused:
    """Why what is stored is not served; `type` is that of the problem details of a single GET."""

    type: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Predicted(Finite):
    """A schedule that was predicted from trials of other problems; nothing ran or proved it.

    `gflops` and `time_us` are expected, and `interval` has 90% of the speeds of such predictions.
    They are null for numbers of threads that no trial had.
    """

    hash: str
    steps: tuple[Json, ...]
    gflops: float | None
    interval: Interval | None
    time_us: float | None
    grade: Annotated[str, Literal["predicted"]] = "predicted"


@dataclass(frozen=True, kw_only=True)
class Found(Reply):
    """A normalised problem and its best schedule.

    `schedule` is null when none is stored, when what is stored is refused, as `error` says, and
    when each of the requested `files` is `unchanged`. A file is null that is not stored, or was not
    proven. `target` is the requested one. `predicted` and the number of the `job` that searches are
    given on request where nothing is stored.

    Attributes:
        result: `schedule` of the document.
    """

    problem: str
    key: str
    result: StoredResult | None = field(metadata={NAME: "schedule"})
    error: Refused | None = None
    unchanged: bool = False
    files: dict[str, File | None] = field(default_factory=dict)
    target: str = ""
    predicted: Predicted | None = None
    job: int | None = None


@dataclass(frozen=True)
class Text:
    """A script or a kernel; `text` is None where the client has it.

    `etag` has no quotes. `match` says how near it is to the request.
    """

    text: str | None
    etag: str
    match: str = "exact"
    target: str = ""
    toolchain: str = ""


@dataclass(frozen=True)
class ProofOfObject:
    """The largest error of an object, linked and run, and its tolerance."""

    max_error: float
    tolerance: float


@dataclass(frozen=True, kw_only=True)
class ObjectFiles(Reply):
    """A kernel for programs that link it; `object` and `bitcode` are base64.

    `schedule` is a hash, `symbol` the name of its function and prefix of others, `alias` the same
    without processor and schedule, `features` the x86-64 extensions that it needs by LLVM's names.
    `scratch_bytes` and `packed_bytes` are memory that a call is given, `parts` the units of work
    for threads. `gflops` is the tuned speed. `proof` has `max_error` within `tolerance`, and if
    made here the object's `gflops` and the `ratio` to the speed of our own call.
    """

    problem: str
    target: str
    schedule: str
    symbol: str
    alias: str
    features: tuple[str, ...]
    scratch_bytes: int
    packed_bytes: int
    parts: int
    toolchain: str
    gflops: float
    header: str
    object: str
    bitcode: str
    proof: Annotated[dict[str, float | None], ProofOfObject]

    @property
    def object_bytes(self) -> bytes:
        """The relocatable ELF file."""
        return base64.b64decode(self.object)

    @property
    def bitcode_bytes(self) -> bytes:
        """The bitcode."""
        return base64.b64decode(self.bitcode)
