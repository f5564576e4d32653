"""Workers, health, tokens, and reports of suites."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from tilewise.schema.base import Finite, Json, Reply, Scope, older


@dataclass(frozen=True, kw_only=True)
class Worker(Finite):
    """A process that takes jobs, and its machine.

    `peaks` are multiply-add peaks of one thread in GFLOP/s by dtype, empty until they were
    measured; `bandwidth_gbs` is what one thread reads from memory, null until then; `features`
    are instruction-set extensions by LLVM's names, null where unknown.
    """

    host: str
    cpu: str
    cores: int
    targets: tuple[str, ...]
    toolchain: str
    capacity: int
    features: tuple[str, ...] | None = older(None)
    peaks: dict[str, float] = older({})
    bandwidth_gbs: float | None = older(None)
    peaks_at: datetime | None = older(None)
    seen: Annotated[datetime | None, datetime] = older(None)


@dataclass(frozen=True, kw_only=True)
class Targets(Reply):
    """Targets that live workers serve, and the workers, of every process on the database."""

    targets: tuple[str, ...]
    workers: tuple[Worker, ...] = older(())


@dataclass(frozen=True, kw_only=True)
class Readiness(Reply):
    """The service is fit to work; each part that was looked at is named."""

    status: Annotated[str, Literal["ok"]] = "ok"
    checks: dict[str, str] = older({})


@dataclass(frozen=True, kw_only=True)
class Token(Reply):
    """A token, without itself; `used` is to the minute.

    Attributes:
        scope: each includes the former: read, submit, admin.
        expires, revoked, used: None for never.
    """

    name: str
    scope: Annotated[str, Scope]
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    used: datetime | None


@dataclass(frozen=True, kw_only=True)
class NewToken(Reply):
    """A token that was made; nobody can be told it again.

    Attributes:
        token: `repr` leaves it out.
    """

    name: str
    scope: Annotated[str, Scope]
    expires: datetime | None
    token: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class SuiteReportHead(Reply, Finite):
    """A stored report without its problems.

    Attributes:
        counted, left_out: problems that the ratios are over, and the others.
        geomean_ratio: geometric mean of ours over the fastest peer of each; None for none.
        ours_gflops, oracle_gflops: the suite's work over its time, by count, with our schedules
            and with the fastest peer of each problem.
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


@dataclass(frozen=True, kw_only=True)
class SuiteReport(SuiteReportHead):
    """A stored report, whole.

    Attributes:
        report: the object that `tilewise bench --json` prints; None in a list.
    """

    report: Annotated[Json | None, Json] = older(None)
