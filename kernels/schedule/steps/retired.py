"""Steps that earlier versions had: stored schedules that have them are displayed, and never run."""

from dataclasses import dataclass

from tilewise.kernels.schedule.steps.base import Step, StepJson

RETIRED: dict[str, tuple[str, ...]] = {"divide": ("dim", "size"), "alternate": ("dim",)}
"""Their names, with the names of their fields."""


@dataclass(frozen=True)
class Retired(Step):
    """A step as it is stored; no schedule that has it is legal.

    Attributes:
        kind: its name.
        values: its fields, in their order.
    """

    kind: str
    values: tuple[tuple[str, str | int], ...]

    def to_json(self) -> StepJson:
        """The step as it was read, so that the schedule keeps its hash."""
        return {"step": self.kind, **dict(self.values)}

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{name}={value}" for name, value in self.values)])
