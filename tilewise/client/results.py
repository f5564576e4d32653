"""What a service answers with, as frozen values.

A newer service may say more: fields that are unknown here are left out, and stand in `document`.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from tilewise.errors import TilewiseError
from tilewise.kernels.system.typed_json import from_json

Json = dict[str, Any]
Interval = tuple[float, ...]


@dataclass(frozen=True)
class Reply:
    """An object that a service gave.

    Attributes:
        document: the object as JSON had it.
    """

    document: Json = field(repr=False, compare=False, kw_only=True)


Kind = TypeVar("Kind", bound=Reply)
Value = TypeVar("Value")


@dataclass(frozen=True)
class TrialCounts:
    """How many trials were asked for, and how those that ended did."""

    asked: int
    timed: int = 0
    pruned: int = 0
    failed: int = 0

    @property
    def ended(self) -> int:
        """How many have ended, however."""
        return self.timed + self.pruned + self.failed


@dataclass(frozen=True)
class Phase:
    """What a run does, and how much of it is done; a `total` of 0 is not known."""

    name: str
    done: int
    total: int


@dataclass(frozen=True)
class Best:
    """A schedule with its speed.

    Attributes:
        hash, steps: the schedule.
        gflops, interval: its speed in GFLOP/s with its 95% interval; no interval in progress.
        time_us: of one run.
        peak_fraction: of the peak measured in the same run; None while the search goes on.
        instruction: multiplies and adds in the native kernel; None where it is not known.
        quality: `good`, or `noisy` where the speed says little; None while the search goes on,
            and from an older service.
        grade: `proven` or `measured`, likewise.
    """

    hash: str
    steps: tuple[Json, ...]
    gflops: float
    interval: Interval | None
    time_us: float | None
    peak_fraction: float | None
    scratch_bytes: dict[str, int] | None = None
    measured: Json | None = None
    instruction: str | None = None
    quality: str | None = None
    grade: str | None = None


@dataclass(frozen=True)
class Past:
    """A result that a later one has replaced (`superseded`), or that was `not_kept`."""

    state: str
    hash: str
    gflops: float
    interval: Interval
    quality: str
    job: int
    created: datetime
    ended: datetime


@dataclass(frozen=True)
class Peer:
    """Another library's speed in GFLOP/s, in the same rounds."""

    gflops: float
    interval: Interval | None = None
    time_us: float | None = None


@dataclass(frozen=True)
class Proof:
    """What the transform script did on real MLIR; `failure` and `message` say why it is not served.

    Attributes:
        hash: of the schedule that the script spells.
        sha256: of the script's text.
        reason: why it is not the best schedule's, where it is not and that is known.
        by: the machine of the cluster's worker that reports the proof; None if a process of the
            service made it.
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
    hash: str | None
    sha256: str | None = None
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True)
class Difference:
    """What was asked for, and what was given in its place."""

    asked: str
    given: str


@dataclass(frozen=True)
class Match:
    """How near a result is to what was asked for: `exact`, `toolchain` or `processor`.

    Attributes:
        differs: `target` and `toolchain`, where they are not those that were asked for.
        reason: how the features of the processors differ; None where they do not.
    """

    kind: str
    differs: dict[str, Difference]
    reason: str | None = None


@dataclass(frozen=True)
class Machine:
    """The machine that a schedule was timed on.

    Attributes:
        cores: processors that a job may run on.
        caches: bytes of the data caches by level, as `l1`, `l2`, `l3`.
        peaks: multiply-add peaks of one thread in GFLOP/s by dtype, as far as they are known.
        bandwidth_gbs: what one thread reads from memory, in GB/s; None until it was measured.
    """

    host: str
    cpu: str
    bandwidth_gbs: float | None = None
    cores: int | None = None
    caches: dict[str, int] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result(Reply):
    """The best schedule of a problem on a target.

    Attributes:
        stale: whether it belongs to another toolchain than the service's own.
        complete: whether the whole budget was spent.
        previous: the newest result of the same work that is not the best; None in look-ups.
    """

    problem: str
    key: str
    target: str
    cache: str
    toolchain: str
    trials: TrialCounts
    elapsed_s: float
    best: Best
    peers: dict[str, Peer]
    proof: Proof | None
    complete: bool
    stale: bool
    match: Match | None = None
    machine: Machine | None = None
    created: datetime | None = None
    previous: Past | None = None

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from tilewise.service.plots.card import result_card

        return result_card(self.document)


@dataclass(frozen=True)
class Job(Reply):
    """A search that was asked for.

    Attributes:
        state: queued, running, done, failed or cancelled.
        best: so far.
        error: why it failed.
        kept: whether its result replaced the stored one; None before it is done.
    """

    id: int
    state: str
    problem: str
    key: str
    target: str
    cache: str
    toolchain: str
    trials: TrialCounts
    elapsed_s: float
    best: Best | None
    error: str | None
    complete: bool | None
    phase: Phase | None = None
    kept: bool | None = None
    created: datetime | None = None
    started: datetime | None = None
    finished: datetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing will happen to it any more."""
        return self.state not in ("queued", "running")


@dataclass(frozen=True)
class Trial(Reply):
    """One finished trial; `samples_us` are its samples, `time_us` their median at pace 1.

    Its `interval` is None where there was one sample.
    """

    number: int
    hash: str
    steps: tuple[Json, ...]
    params: Json
    state: str
    origin: str
    failure: str | None
    message: str
    gflops: float | None
    interval: Interval | None
    time_us: float | None
    samples_us: tuple[float, ...]
    pace: float | None
    cache: str
    rejected: int
    compile_s: float
    max_error: float | None
    created: datetime | None = None
    tile: Json | None = None


@dataclass(frozen=True)
class StoredTrial(Trial):
    """One finished trial, with the job and the work that it belongs to."""

    job: int = field(kw_only=True)
    problem: str = field(kw_only=True)
    target: str = field(kw_only=True)
    toolchain: str = field(kw_only=True)


@dataclass(frozen=True)
class Readiness(Reply):
    """That a service is fit to work; `checks` has what was looked at."""

    status: str
    checks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SuiteReport(Reply):
    """What a run of `tilewise bench` has found.

    Attributes:
        counted, left_out: problems that the ratios are over, and the others.
        geomean_ratio: geometric mean of ours over the fastest peer of each; None for none.
        ours_gflops, oracle_gflops: the suite's work over its time, by count, with our schedules
            and with the fastest peer of each problem.
        report: the object that the command prints; None in a list.
    """

    id: int
    suite: str
    source: str
    target: str
    processor: str
    toolchain: str
    counted: int
    left_out: int
    geomean_ratio: float | None
    ours_gflops: float | None
    oracle_gflops: float | None
    created: datetime
    report: Json | None = None


@dataclass(frozen=True)
class Token(Reply):
    """Somebody's access to a service, without the token itself.

    Attributes:
        scope: read, submit or admin; each includes the former.
        expires, revoked, used: None for never.
    """

    name: str
    scope: str
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    used: datetime | None


@dataclass(frozen=True)
class NewToken(Reply):
    """A token, which a service tells this once; `repr` leaves it out."""

    name: str
    scope: str
    expires: datetime | None
    token: str = field(repr=False)


def read(kind: type[Kind], source: Json) -> Kind:
    """The value that a service's object stands for.

    Raises:
        TilewiseError: it is none; the message names the field.
    """
    return read_part(kind, {**source, "document": source})


def read_part(kind: type[Value], source: Json) -> Value:
    """The value that a part of an object stands for, which keeps no `document`.

    Raises:
        TilewiseError: it is none; the message names the field.
    """
    try:
        return from_json(kind, source, tolerant=True)
    except ValueError as error:
        raise TilewiseError(f"the service's answer is of another form: {error}") from error
