"""The HTTP API's responses, as OpenAPI shows them: a plan of a whole model."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from tilewise.kernels.problem import Accuracy
from tilewise.search.records import CacheMode
from tilewise.service.api.schemas.jobs import Page
from tilewise.service.api.schemas.modules import SkippedOpView
from tilewise.service.api.schemas.networks import PartView
from tilewise.service.api.schemas.results import FiniteView
from tilewise.service.db.models import JobState, PlanLayouts, PlanState


class VariantView(BaseModel):
    """A problem in another layout or padding than the model's, which a plan may choose.

    `job` is null where a stored schedule answered.
    """

    problem: str
    key: str
    state: JobState
    job: int | None
    time_us: float | None


class TotalsView(BaseModel):
    """Microseconds of layers and copies: as planned, in the model's layouts, each on its own."""

    chosen_us: float
    plain_us: float
    alone_us: float


class PackProofView(BaseModel):
    """The proof of a pack script, and how many packs and unpacks of activations it leaves.

    `reshapes` of them move nothing; `weights` are packs that are done once, at load. `by` is the
    machine of the cluster's worker that reports the proof, null if a process of this service made
    it.
    """

    max_error: float | None
    tolerance: float | None
    mlir: str
    packs: int
    unpacks: int
    reshapes: int
    weights: int
    by: str | None = None


class PlanHeadView(FiniteView):
    """A plan without its problems.

    `phase` says what is done now: `tuning` while jobs run, `waiting` for a worker, `choosing`,
    `proving`; null once the plan has ended. `script_error` says why there is no script.
    """

    id: int
    state: PlanState
    phase: str | None
    name: str
    sha256: str
    target: str
    toolchain: str
    cache: CacheMode
    accuracy: Accuracy
    trials: int
    seed: int
    layouts: PlanLayouts
    totals: TotalsView | None
    proof: PackProofView | None
    script_error: str | None
    error: str | None
    created: datetime
    started: datetime | None
    finished: datetime | None
    links: dict[str, str]


class PlanView(PlanHeadView):
    """A plan with its problems: those of the model, and those that differ from them in layout.

    `plan` is the object that `tilewise plan --json` prints, null until it is chosen.
    """

    problems: list[PartView]
    variants: list[VariantView]
    skipped: list[SkippedOpView]
    plan: dict[str, Any] | None


class PlanPage(Page):
    """Plans, newest first."""

    plans: list[PlanHeadView]


class PlanPartView(VariantView):
    """One problem of a plan that is tuned or never will be, as an event tells it.

    `done` and `total` count the problems of the plan.
    """

    done: int
    total: int
