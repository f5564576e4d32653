"""What look-ups find, where it is, and who could find more: as frozen values."""

import base64
from dataclasses import dataclass, field
from datetime import datetime

from tilewise.client.results import Json, Reply, Result, read


@dataclass(frozen=True)
class Worker:
    """A process that takes jobs, and its machine.

    Attributes:
        peaks: multiply-add peaks of one thread in GFLOP/s by dtype, as far as they are known.
        bandwidth_gbs: what one thread reads from memory, in GB/s, where it is known.
    """

    host: str
    cpu: str
    cores: int
    targets: tuple[str, ...]
    toolchain: str
    capacity: int
    features: tuple[str, ...] | None = None
    peaks: dict[str, float] = field(default_factory=dict)
    bandwidth_gbs: float | None = None
    peaks_at: datetime | None = None
    seen: datetime | None = None


@dataclass(frozen=True)
class Targets(Reply):
    """The targets that live workers serve, and the workers."""

    targets: tuple[str, ...]
    workers: tuple[Worker, ...] = ()


@dataclass(frozen=True)
class File:
    """Where a script or a kernel is; `etag` is None for one that is made when it is asked for."""

    etag: str | None
    path: str


@dataclass(frozen=True)
class Refused:
    """Why what is stored is not served."""

    type: str
    detail: str


@dataclass(frozen=True)
class Found(Reply):
    """What a look-up says of one problem.

    Attributes:
        problem: as it is normalised.
        target: that was asked for, canonical; empty from a service of before 0.2.
        result: None where nothing is stored, where it is refused, and where it is `unchanged`.
        unchanged: whether each file that was asked for is the one that was known.
        files: by kind; None for one that is not stored or was not proven.
    """

    problem: str
    key: str
    result: Result | None
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
class ObjectFiles(Reply):
    """A kernel as machine code, which was linked, run and compared where it was made.

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
        object: a relocatable ELF file, in base64; `object_bytes` are it.
        bitcode: the same for LLVM, in base64; `bitcode_bytes` are it.
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
    proof: dict[str, float | None]

    @property
    def object_bytes(self) -> bytes:
        """The relocatable file."""
        return base64.b64decode(self.object)

    @property
    def bitcode_bytes(self) -> bytes:
        """The bitcode."""
        return base64.b64decode(self.bitcode)


@dataclass(frozen=True)
class FoundProblem:
    """A problem of a module: how many of its ops are it, and their places."""

    problem: str
    count: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class SkippedOp:
    """An op of a module that multiplies or convolves and is no problem, and why."""

    op: str
    reason: str
    where: str = ""


@dataclass(frozen=True)
class ImportedModule(Reply):
    """What was found in an MLIR module, in its order."""

    problems: tuple[FoundProblem, ...]
    skipped: tuple[SkippedOp, ...]


@dataclass(frozen=True)
class OpScript(Reply):
    """The script of one op of a module, proven on it.

    Attributes:
        problem: that the op is by itself.
        place: where it stands.
        script: with the op in front, if that was asked for.
    """

    problem: str
    place: str
    script: str


@dataclass(frozen=True)
class ModelPart(FoundProblem):
    """A problem of a model that is tuned.

    Attributes:
        state: of its job; done where what is stored answered.
        job: its number; None where there is none.
        time_us: of what is stored, if any is.
    """

    key: str
    state: str
    job: int | None
    time_us: float | None


@dataclass(frozen=True)
class Model(Reply):
    """A model whose problems are tuned as one.

    Attributes:
        state: queued, running, done, failed or cancelled.
        sha256: of its module.
        trials: asked for, of each problem.
        accuracy: of all problems: `standard` or `strict`.
        time_us: sum over all problems, each by its count; None while one has no schedule.
    """

    id: int
    state: str
    sha256: str
    target: str
    toolchain: str
    cache: str
    trials: int
    problems: tuple[ModelPart, ...]
    skipped: tuple[SkippedOp, ...]
    time_us: float | None
    created: datetime | None = None
    accuracy: str = "standard"

    @property
    def has_ended(self) -> bool:
        """Whether nothing will happen to it any more."""
        return self.state not in ("queued", "running")


def read_found(source: Json) -> Found:
    """One answer of a look-up."""
    stored = source.get("schedule")
    result = read(Result, stored) if isinstance(stored, dict) else None
    found = read(Found, {**source, "result": None})
    return Found(
        found.problem,
        found.key,
        result,
        found.error,
        found.unchanged,
        found.files,
        found.target,
        document=source,
    )
