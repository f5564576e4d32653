"""Steps that earlier versions had: stored schedules that have them are displayed, and never run."""

from dataclasses import dataclass
from typing import ClassVar

from tilewise.kernels.nest import Nest
from tilewise.kernels.steps.base import RETIRED, Phase, Place, Step


@dataclass(frozen=True)
class Retired(Step):
    """A step as it is stored; no schedule that has it is legal."""

    place: ClassVar[Place] = Place.ANYWHERE
    phase: ClassVar[Phase] = Phase.ALGORITHM

    def check(self, nest: Nest) -> None:
        """Raise: no nest is made by it."""
        raise self.refused(nest, "an earlier version had this step; search again")

    def apply(self, nest: Nest) -> Nest:
        """Raise: no nest is made by it."""
        raise self.refused(nest, "an earlier version had this step; search again")


@dataclass(frozen=True)
class Divide(Retired):
    """Sum blocks of the reduction apart."""

    name: ClassVar[str] = "divide"
    dim: str
    size: int


@dataclass(frozen=True)
class Alternate(Retired):
    """Visit blocks from the end that is in the cache."""

    name: ClassVar[str] = "alternate"
    dim: str


RETIRED.update({kind.name: kind for kind in (Divide, Alternate)})
