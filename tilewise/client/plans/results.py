"""What a service says of a plan, as frozen values."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tilewise.client.found import ModelPart, SkippedOp
from tilewise.client.results import Reply


@dataclass(frozen=True)
class PlanVariant:
    """A problem in another layout or padding than the model's, which a plan may choose.

    Attributes:
        state: of its job; done where what is stored answered.
        job: its number; None where there is none.
        time_us: of what is stored, if any is.
    """

    problem: str
    key: str
    state: str
    job: int | None
    time_us: float | None


@dataclass(frozen=True)
class PlanTotals:
    """Microseconds of layers and copies.

    Attributes:
        chosen_us: as planned.
        plain_us: in the layouts of the model.
        alone_us: each layer by its fastest schedule, with the copies between.
    """

    chosen_us: float
    plain_us: float
    alone_us: float


@dataclass(frozen=True)
class ModelPlan(Reply):
    """A plan of a model.

    Attributes:
        state: queued, running, done, failed or cancelled.
        phase: what is done now: `tuning`, `waiting`, `choosing`, `proving`; None once it has ended.
        name: what the model is called.
        sha256: of its module.
        trials, seed: of each search.
        layouts: which are offered: `model` or `all`.
        accuracy: of all problems: `standard` or `strict`.
        totals: once it is chosen.
        script_error: why there is no script; None where there is one.
        error: why it has failed.
        problems, variants, skipped: the model's, others in layout, and what is left; in lists of
            plans there are none.
        plan: `tilewise/plan/1`, once it is chosen; in lists of plans there is none.
    """

    id: int
    state: str
    phase: str | None
    name: str
    sha256: str
    target: str
    toolchain: str
    cache: str
    trials: int
    seed: int
    layouts: str
    totals: PlanTotals | None
    script_error: str | None
    error: str | None
    created: datetime | None = None
    started: datetime | None = None
    finished: datetime | None = None
    accuracy: str = "standard"
    problems: tuple[ModelPart, ...] = ()
    variants: tuple[PlanVariant, ...] = ()
    skipped: tuple[SkippedOp, ...] = ()
    plan: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def has_ended(self) -> bool:
        """Whether nothing will happen to it any more."""
        return self.state not in ("queued", "running")
