"""Workers, health, tokens, and reports of suites."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from tilewise.schema.base import Finite, Json, Reply, Scope, older


@dataclass(frozen=True, kw_only=True)
class Worker(Finite):
    """A process that takes jobs, and its machine.

    `peaks` are multiply-add peaks of one thread in GFLOP/s by dtype, empty until measured;
    `bandwidth_gbs` is what one thread reads from memory, null until then; `features` are
    instruction-set extensions by LLVM's names, null where unknown.
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
    """Whether the service is ready, with each part that was checked."""

    status: Annotated[str, Literal["ok"]] = "ok"
    checks: dict[str, str] = older({})


@dataclass(frozen=True, kw_only=True)
class Token(Reply):
    """A token without its secret; each scope includes the former: read, submit, admin.

    `used` is to the minute.
    """

    name: str
    scope: Annotated[str, Scope]
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    used: datetime | None


@dataclass(frozen=True, kw_only=True)
class NewToken(Reply):
    """A new token, shown this once."""

    name: str
    scope: Annotated[str, Scope]
    expires: datetime | None
    token: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class SuiteReportHead(Reply, Finite):
    """A stored report without its problems.

    Ratios are over the `counted` problems, `left_out` are the others. `geomean_ratio` is the
    geometric mean of ours over the fastest peer of each. `ours_gflops` and `oracle_gflops` are the
    suite's work over its time, by count, with our schedules and with the fastest peer of each
    problem.
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
    """A stored report; `report` is what `tilewise bench --json` prints, null in lists."""

    report: Annotated[Json | None, Json] = older(None)
