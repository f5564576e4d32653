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
    older,
)
from tilewise.search.final_benchmark.quality import Quality
from tilewise.search.records import CacheMode, TrialState
from tilewise.search.space.points import TileKind


@dataclass(frozen=True, kw_only=True)
class TrialCounts:
    """How many trials were asked for, and how those that ended did."""

    asked: int
    timed: int = older(0)
    pruned: int = older(0)
    failed: int = older(0)

    @property
    def ended(self) -> int:
        """How many have ended, in whatever state."""
        return self.timed + self.pruned + self.failed


@dataclass(frozen=True)
class Phase:
    """What a run does, and how much of it is done; `total` is 0 where nobody can say."""

    name: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Measured:
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


@dataclass(frozen=True, kw_only=True)
class Best(Finite):
    """A schedule with its speed; `peak_fraction` is null while the search runs.

    `scratch_bytes` are those of the panels of A and of B, of all threads together. `instruction`
    multiplies and adds in the native kernel; it is null where neither the steps nor the features of
    the machine tell. `quality` says whether the interval is narrow enough for the speed to mean
    something; null while the search runs. `grade` is `proven` where a script of the result is
    proven on real MLIR.

    Attributes:
        gflops, interval: the speed in GFLOP/s with its 95% interval; no interval in progress.
        time_us: of one run.
        peak_fraction: of the peak measured in the same run.
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
    grade: Annotated[str | None, Literal["proven", "measured"] | None] = None


@dataclass(frozen=True, kw_only=True)
class Past(Finite):
    """A result that a later one has replaced, or that was measured and not kept."""

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
    """What the transform script did on real MLIR.

    `reason` says why a script of another schedule than the best one is served; null where it is
    the best one's, where nothing is known, and in look-ups.

    `by` is the machine of the cluster's worker that reports the proof: the service made the script
    of its steps again, and did not run it. It is null if a process of this service ran it.

    Attributes:
        failure, message: why the script is not served.
        hash: of the schedule that the script spells.
        sha256: of the script's text.
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
    sha256: str | None = older(None)
    by: str | None = None


@dataclass(frozen=True)
class SpaceSize:
    """How many different legal schedules there are; `exact` when they were counted."""

    schedules: int
    exact: bool


@dataclass(frozen=True)
class Difference:
    """What was asked for, and what is given in its place."""

    asked: str
    given: str


@dataclass(frozen=True, kw_only=True)
class Match:
    """How near a result is to what was asked for.

    `exact`: of the target and of the present toolchain; `toolchain`: of another toolchain;
    `processor`: of a processor whose kernels the asked one can run. `differs` names target and
    toolchain where they are not those asked for. `reason` says how the features differ, null where
    they do not.
    """

    kind: Annotated[str, MatchKind]
    differs: Annotated[dict[str, Difference], dict[Literal["target", "toolchain"], Difference]]
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Machine(Finite):
    """The machine that a schedule was timed on.

    `caches` are bytes of its data caches by level. `peaks` are multiply-add peaks of one thread in
    GFLOP/s by dtype, and `bandwidth_gbs` is what one thread reads from memory: empty and null until
    they were measured.

    Attributes:
        cores: processors that a job may run on; None from an older service.
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

    `previous` is the newest result of the same work that is not the best: null where there is none,
    and in look-ups.

    Attributes:
        complete: whether the whole budget was spent.
    """

    problem: str
    key: str
    target: str
    cache: Annotated[str, CacheMode]
    toolchain: str
    machine: Machine | None = None
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
class Job(Reply, Finite):
    """A job, and its best so far; `phase` is null before its first run.

    `unserved_since` says since when it waits and no live worker of the cluster serves its target,
    null where one does, and where there is no cluster. `spread` is how many machines may share the
    search, `helpers` how many help the one that runs it now. `kept` says of a job that is done
    whether its result replaced the stored one; null where that is not known.

    Attributes:
        error: why it failed.
    """

    id: int
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
    error: str | None
    complete: bool | None
    spread: int = 1
    helpers: int = 0
    unserved_since: datetime | None = None
    created: Annotated[datetime | None, datetime] = older(None)
    started: datetime | None = older(None)
    finished: datetime | None = older(None)
    links: dict[str, str] = older({})

    @property
    def has_ended(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state not in ("queued", "running")


@dataclass(frozen=True, kw_only=True)
class Tile(Finite):
    """The register tile of a trial.

    `vectors` counts vectors of a row of the result, and single columns of a `split` or `iree` tile.
    A `split` tile adds up each element in `partial_sums` vectors along k. A `sweep` reads `depth`
    rows of B at once, its k-block, from `streams` parts of k.
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

    `tile` is the register tile of `params` as an object, null where they have none.
    `pace` is how many times longer than on the undisturbed machine everything took, null
    where nothing told it; `time_us` is the median of `samples_us` over it. `samples_taken` is how
    many samples there were before `tilewise db prune` has left some of them, null where all are
    there. `interval` is null where there was one sample.
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
    """One finished trial, with the job and the work that it belongs to."""

    job: int
    problem: str
    target: str
    toolchain: str


@dataclass(frozen=True)
class File:
    """A script or a kernel; `etag` is null for one that is made when it is first asked for."""

    etag: str | None
    path: str


@dataclass(frozen=True)
class Refused:
    """Why what is stored is not served; `type` is that of the problem details of a single GET."""

    type: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Found(Reply):
    """A problem as it is normalised, and its best schedule.

    `schedule` is null when none is stored, when what is stored is refused, as `error` says, and
    when each of the `files` that were asked for is `unchanged`. A file is null that is not
    stored, or was not proven. `target` is what was asked for.

    Attributes:
        result: `schedule` of the document.
        target: canonical; empty from a service of before 0.2.
    """

    problem: str
    key: str
    result: StoredResult | None = field(metadata={NAME: "schedule"})
    error: Refused | None = None
    unchanged: bool = False
    files: dict[str, File | None] = field(default_factory=dict)
    target: str = ""


@dataclass(frozen=True)
class Text:
    """A script or a kernel.

    Attributes:
        text: None where the service says that the client has it.
        etag: its strong entity tag, without quotes.
        match: how near it is to what was asked for.
        target, toolchain: what it belongs to.
    """

    text: str | None
    etag: str
    match: str = "exact"
    target: str = ""
    toolchain: str = ""


@dataclass(frozen=True)
class ProofOfObject:
    """How far an object was off, linked and run, and how far it might be."""

    max_error: float
    tolerance: float


@dataclass(frozen=True, kw_only=True)
class ObjectFiles(Reply):
    """A kernel for programs that link it; `object` and `bitcode` are base64.

    Attributes:
        problem, target, schedule: what it is of; the schedule's hash.
        symbol: the name of its function; other names begin with it.
        alias: the same without processor and schedule, which the header defines.
        features: extensions of x86-64 that it needs, by LLVM's names.
        scratch_bytes, packed_bytes: of the memory that a call is given; 0 for none.
        parts: into which the work is cut, for threads.
        toolchain: what made it.
        gflops: the schedule's speed where it was tuned.
        header: in C.
        object: a relocatable ELF file; `object_bytes` are it.
        bitcode: the same for LLVM; `bitcode_bytes` are it.
        proof: `max_error` within `tolerance`; of one that was made here also `gflops` of the
            object in that run, and the `ratio` of its speed to that of our own call.
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
        """The relocatable file."""
        return base64.b64decode(self.object)

    @property
    def bitcode_bytes(self) -> bytes:
        """The bitcode."""
        return base64.b64decode(self.bitcode)
