"""The HTTP API's responses, as OpenAPI shows them: jobs and trials."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from tilewise.search.records import CacheMode, TrialState
from tilewise.search.space.points import TileKind
from tilewise.service.api.schemas.results import BestView, FiniteView, TrialCounts
from tilewise.service.db.models import JobState


class PhaseView(BaseModel):
    """What a run does, and how much of it is done; `total` is 0 where nobody can say."""

    name: str
    done: int
    total: int


class JobView(FiniteView):
    """A job, and its best so far; `phase` is null before its first run.

    `unserved_since` says since when it waits and no live worker of the cluster serves its target,
    null where one does, and where there is no cluster. `spread` is how many machines may share the
    search, `helpers` how many help the one that runs it now. `kept` says of a job that is done
    whether its result replaced the stored one; null where that is not known.
    """

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
    kept: bool | None = None
    error: str | None
    complete: bool | None
    spread: int = 1
    helpers: int = 0
    unserved_since: datetime | None = None
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


class TileView(FiniteView):
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


class TrialView(FiniteView):
    """One finished trial.

    `tile` is the register tile of `params` as an object, null where they have none.
    `pace` is how many times longer than on the undisturbed machine everything took, null
    where nothing told it; `time_us` is the median of `samples_us` over it. `samples_taken` is how
    many samples there were before `tilewise db prune` has left some of them, null where all are
    there. `interval` is null where there was one sample.
    """

    number: int
    hash: str
    steps: list[dict[str, Any]]
    params: dict[str, Any]
    tile: TileView | None
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
