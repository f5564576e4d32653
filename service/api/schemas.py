"""The HTTP API's responses, as OpenAPI shows them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    StringConstraints,
)

from search.records import CacheMode, TrialState
from service.db.models import JobState, Scope
from service.results.nearest import Kind

Flavor = Literal["cpu", "air", "iree"]
ProblemKey = Annotated[str, StringConstraints(pattern="^[0-9A-Za-z]*$", max_length=64)]
"""A problem's SHA-256 in a path; other letters and digits are the key of no problem."""


class TrialCounts(BaseModel):
    """How many trials were asked for, and how those that ended did."""

    asked: int
    timed: int
    pruned: int
    failed: int


class MeasuredView(BaseModel):
    """How a speed was had: samples kept and thrown away, placements of the buffers.

    `disturbed` rounds count for no median, for everything was slow in them. `cold` says what
    emptied the caches before each sample, null when they were hot.
    """

    samples: int
    placements: int
    rejected: int
    disturbed: int = 0
    cold: str | None


class FiniteView(BaseModel):
    """What holds numbers of the database; JSON has no infinite ones."""

    model_config = ConfigDict(allow_inf_nan=False)


class BestView(FiniteView):
    """A schedule with its speed; `peak_fraction` is null while the search runs.

    `scratch_bytes` are those of the panels of A and of B, of all threads together.
    """

    hash: str
    steps: list[dict[str, Any]]
    gflops: float
    interval: tuple[float, float] | None
    time_us: float | None
    peak_fraction: float | None
    scratch_bytes: dict[str, int] | None = None
    measured: MeasuredView | None = None


class PhaseView(BaseModel):
    """What a run does, and how much of it is done; `total` is 0 where nobody can say."""

    name: str
    done: int
    total: int


class JobView(FiniteView):
    """A job, and its best so far; `phase` is null before its first run."""

    id: int
    state: JobState
    problem: str
    key: str
    target: str
    cache: CacheMode
    toolchain: str
    trials: TrialCounts
    elapsed_s: float
    phase: PhaseView | None
    best: BestView | None
    error: str | None
    complete: bool | None
    created: datetime
    started: datetime | None
    finished: datetime | None
    links: dict[str, str]


class Page(BaseModel):
    """Rows of the database.

    `next` is the path of the page after, null at the end. `unreadable` rows are damaged in the
    database and left out of this page; the service's log names them.
    """

    next: str | None
    unreadable: int = 0


class JobPage(Page):
    """Jobs, newest first."""

    jobs: list[JobView]


class TrialView(FiniteView):
    """One finished trial.

    `pace` is how many times longer than in the job's first trial everything took meanwhile, null
    where nothing told it; `time_us` is the median of `samples_us` over it. `samples_taken` is how
    many samples there were before `tilewise db prune` has left some of them, null where all are
    there.
    """

    number: int
    hash: str
    steps: list[dict[str, Any]]
    params: dict[str, Any]
    state: TrialState
    origin: str
    failure: str | None
    message: str
    gflops: float | None
    interval: tuple[float, float] | None
    time_us: float | None
    samples_us: list[float]
    samples_taken: int | None = None
    pace: float | None
    cache: CacheMode
    rejected: int
    compile_s: float
    max_error: float | None
    created: datetime


class TrialPage(Page):
    """Trials by number."""

    trials: list[TrialView]


class StoredTrialView(TrialView):
    """One finished trial, with the job and the work that it belongs to."""

    job: int
    problem: str
    target: str
    toolchain: str


class StoredTrialPage(Page):
    """Trials as they were stored."""

    trials: list[StoredTrialView]


class ProofView(BaseModel):
    """What the transform script did on real MLIR."""

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
    hash: str | None
    sha256: str | None


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
    toolchain where they are not those asked for.
    """

    kind: Kind
    differs: dict[Literal["target", "toolchain"], DifferenceView]


class ResultView(BaseModel):
    """The best schedule of a problem; `stale` when it belongs to another toolchain."""

    problem: str
    key: str
    target: str
    cache: CacheMode
    toolchain: str
    trials: TrialCounts
    space: SpaceView | None = None
    elapsed_s: float
    best: BestView
    peers: dict[str, dict[str, Any]]
    proof: ProofView | None
    complete: bool
    stale: bool
    match: MatchView
    created: datetime


class RefusedView(BaseModel):
    """Why what is stored is not served; `type` is that of the problem details of a single GET."""

    type: str
    detail: str


class FileView(BaseModel):
    """A script or a kernel; `etag` is null for one that is made when it is first asked for."""

    etag: str | None
    path: str


class FoundView(BaseModel):
    """A problem as it is normalised, and its best schedule.

    `schedule` is null when none is stored, when what is stored is refused, as `error` says, and
    when each of the `files` that were asked for is `unchanged`. A file is null that is not
    stored, or was not proven.
    """

    problem: str
    key: str
    schedule: ResultView | None
    error: RefusedView | None = None
    unchanged: bool = False
    files: dict[str, FileView | None] = {}


class LookupView(BaseModel):
    """The answers of a look-up, in the order in which they were asked for."""

    target: str
    toolchain: str
    schedules: list[FoundView]


class WorkersView(FiniteView):
    """A process that takes jobs, and its machine.

    `peaks` are multiply-add peaks of one thread in GFLOP/s by dtype, empty until they were
    measured; `features` are instruction-set extensions by LLVM's names, null where unknown.
    """

    host: str
    cpu: str
    cores: int
    targets: list[str]
    toolchain: str
    capacity: int
    features: list[str] | None
    peaks: dict[str, float]
    peaks_at: datetime | None
    seen: datetime


class TargetsView(BaseModel):
    """Targets that live workers serve, and the workers, of every process on the database."""

    targets: list[str]
    workers: list[WorkersView]


class TokenView(BaseModel):
    """A token, without itself; `used` is to the minute."""

    name: str
    scope: Scope
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    used: datetime | None


class TokensView(BaseModel):
    """All tokens, by name."""

    tokens: list[TokenView]


class NewTokenView(BaseModel):
    """A token that was made; nobody can be told it again."""

    name: str
    scope: Scope
    expires: datetime | None
    token: str


class StatusView(BaseModel):
    """Whether the service is there."""

    status: Literal["ok"] = "ok"


class ReadyView(BaseModel):
    """The service is fit to work; each part that was looked at is named."""

    status: Literal["ok"] = "ok"
    checks: dict[str, str]


class UnfinishedView(BaseModel):
    """What was asked for is being made; ask `location` again."""

    detail: str
    location: str


class FieldError(BaseModel):
    """One field of the request, and what is wrong with it."""

    field: str
    message: str


class ProblemDetails(BaseModel):
    """An error, by RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FieldError] | None = None
