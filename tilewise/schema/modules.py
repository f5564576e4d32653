"""The problems of MLIR modules, models tuned as one, and plans of models."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from tilewise.kernels.problem import Accuracy
from tilewise.schema.base import JobState, Json, MatchKind, Reply, Work, older
from tilewise.search.networks.request import Layouts
from tilewise.search.records import CacheMode


@dataclass(frozen=True, kw_only=True)
class FoundProblem:
    """A problem of a module, and the number and places of its ops."""

    problem: str
    count: int
    where: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SkippedOp:
    """An op that multiplies or convolves and is no problem, and why."""

    op: str
    reason: str
    where: str = older("")


@dataclass(frozen=True, kw_only=True)
class ImportedModule(Reply):
    """The problems of a module, in the order of their first ops."""

    problems: tuple[FoundProblem, ...]
    skipped: tuple[SkippedOp, ...]


@dataclass(frozen=True)
class ScheduleOfOp:
    """The schedule of a script."""

    hash: str
    steps: tuple[Json, ...]


@dataclass(frozen=True)
class ProofOfOp:
    """The proof of a script on an op: largest error, tolerance, and speed."""

    max_error: float | None
    tolerance: float | None
    gflops: float | None
    mlir: str


@dataclass(frozen=True, kw_only=True)
class OpScript(Reply):
    """The script of an op at `place` in a module; `problem` is what the op is by itself.

    `match` says how near the schedule is to the request, as `Tilewise-Match` does; `stale` marks
    timing by another toolchain. The script includes the op if that was requested.
    """

    problem: str
    place: str
    flavor: str = older("cpu")
    schedule: Annotated[ScheduleOfOp | None, ScheduleOfOp] = older(None)
    target: str = older("")
    toolchain: str = older("")
    match: Annotated[str, MatchKind] = older("exact")
    stale: bool = older(False)
    proof: Annotated[ProofOfOp | None, ProofOfOp] = older(None)
    script: str


@dataclass(frozen=True, kw_only=True)
class ModelPart(FoundProblem):
    """A problem of a model, the state of its job, and the stored time if there is one.

    `job` is null where a stored schedule answered.
    """

    key: str
    state: Annotated[str, JobState]
    job: int | None
    time_us: float | None


@dataclass(frozen=True, kw_only=True)
class Model(Reply, Work):
    """A model whose problems are tuned as one.

    `trials` are those of each search. `time_us` is the sum over all problems by count; null while
    one has no schedule.
    """

    id: int
    state: Annotated[str, JobState]
    sha256: str
    target: str
    toolchain: str
    cache: Annotated[str, CacheMode]
    accuracy: Annotated[str, Accuracy] = older("standard")
    trials: int
    problems: tuple[ModelPart, ...]
    skipped: tuple[SkippedOp, ...]
    time_us: float | None
    created: Annotated[datetime | None, datetime] = older(None)
    links: dict[str, str] = older({})


@dataclass(frozen=True, kw_only=True)
class PlanVariant:
    """A problem in another layout or padding than the model's, which a plan may choose.

    `job` is null where a stored schedule answered.
    """

    problem: str
    key: str
    state: Annotated[str, JobState]
    job: int | None
    time_us: float | None


@dataclass(frozen=True, kw_only=True)
class PlanPart(PlanVariant):
    """A problem of a plan that was tuned, or never will be, in an event.

    `done` and `total` count the problems of the plan.
    """

    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class PlanTotals:
    """Microseconds of layers and copies: as planned, in the model's layouts, each on its own."""

    chosen_us: float
    plain_us: float
    alone_us: float


@dataclass(frozen=True, kw_only=True)
class PackProof:
    """The proof of a pack script, and the packs and unpacks of activations that it leaves.

    `reshapes` of them move nothing; `weights` are packed once, at load. `by` is the cluster's
    machine that reports the proof, null if a process of this service made it.
    """

    max_error: float | None
    tolerance: float | None
    mlir: str
    packs: int
    unpacks: int
    reshapes: int
    weights: int
    by: str | None = None


@dataclass(frozen=True, kw_only=True)
class PlanHead(Reply, Work):
    """A plan without its problems.

    `phase` is `tuning` while jobs run, `waiting` for a worker, `choosing` or `proving`; null once
    the plan has ended. `layouts` are those offered. `script_error` says why there is no script.
    """

    id: int
    state: Annotated[str, JobState]
    phase: str | None
    name: str
    sha256: str
    target: str
    toolchain: str
    cache: Annotated[str, CacheMode]
    accuracy: Annotated[str, Accuracy] = older("standard")
    trials: int
    seed: int
    layouts: Annotated[str, Layouts]
    totals: PlanTotals | None
    proof: PackProof | None = older(None)
    script_error: str | None
    error: str | None
    created: Annotated[datetime | None, datetime] = older(None)
    started: datetime | None = older(None)
    finished: datetime | None = older(None)
    links: dict[str, str] = older({})


@dataclass(frozen=True, kw_only=True)
class ModelPlan(PlanHead):
    """A plan with its problems, and those that differ from them in layout.

    `plan` is the object that `tilewise plan --json` prints, null until it is chosen. Lists of plans
    have neither.
    """

    problems: tuple[ModelPart, ...] = older(())
    variants: tuple[PlanVariant, ...] = older(())
    skipped: tuple[SkippedOp, ...] = older(())
    plan: Json | None = field(default=None, repr=False, metadata={"always": True})
