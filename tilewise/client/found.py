"""What look-ups find, where it is, and who could find more: as frozen values."""

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
        document=source,
    )
