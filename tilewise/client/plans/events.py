"""Server-sent events of a plan."""

from dataclasses import dataclass

from tilewise.client.events import PhaseReached, Stream
from tilewise.client.plans.results import ModelPlan, PlanVariant
from tilewise.client.results import Phase, read, read_part


@dataclass(frozen=True)
class PartEnded:
    """A problem of the plan has a schedule, or will have none.

    Attributes:
        part: the problem.
        done, total: how many have ended, and of how many.
    """

    part: PlanVariant
    done: int
    total: int


@dataclass(frozen=True)
class PlanEnded:
    """The plan has ended; nothing comes after this. Its problems are not told again."""

    plan: ModelPlan


PlanEvent = PhaseReached | PartEnded | PlanEnded


@dataclass(frozen=True)
class _Counted:
    done: int
    total: int


class PlanFollower(Stream[PlanEvent]):
    """The events of a plan.

    Args:
        plan_id: the plan.
        after: number of the last problem that is known; None to begin with the first.
    """

    names = ("phase", "part", "end")

    def __init__(self, plan_id: int, after: int | None = None) -> None:
        super().__init__(f"/v1/plans/{plan_id}/events", after)

    def _read(self, name: str, source: dict[str, object]) -> PlanEvent | None:
        if name == "phase":
            return PhaseReached(read_part(Phase, source))
        if name == "end":
            self.is_over = True
            return PlanEnded(read(ModelPlan, source))
        counted = read_part(_Counted, source)
        if counted.done - 1 <= self.after:
            return None
        self.after = counted.done - 1
        return PartEnded(read_part(PlanVariant, source), counted.done, counted.total)
