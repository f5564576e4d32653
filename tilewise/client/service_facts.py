"""What a service says of itself: its workers and their machines, its fitness, its tokens."""

from dataclasses import dataclass, field
from datetime import datetime

from tilewise.client.results import Reply


@dataclass(frozen=True)
class Worker:
    """A process that takes jobs, and its machine.

    Attributes:
        peaks: multiply-add peaks of one thread in GFLOP/s by dtype, as far as they are known.
    """

    host: str
    cpu: str
    cores: int
    targets: tuple[str, ...]
    toolchain: str
    capacity: int
    features: tuple[str, ...] | None = None
    peaks: dict[str, float] = field(default_factory=dict)
    peaks_at: datetime | None = None
    seen: datetime | None = None


@dataclass(frozen=True)
class Targets(Reply):
    """The targets that live workers serve, and the workers."""

    targets: tuple[str, ...]
    workers: tuple[Worker, ...] = ()


@dataclass(frozen=True)
class Readiness(Reply):
    """That a service is fit to work; `checks` has what was looked at."""

    status: str
    checks: dict[str, str] = field(default_factory=dict)


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
