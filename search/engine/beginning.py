"""What a search begins with, by whose code its target runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewise.kernels.instructions.measured import with_rates
from tilewise.kernels.problem import Problem
from tilewise.kernels.target.model import Target
from tilewise.search.model.analytical import Model
from tilewise.search.model.levels import LevelModel, level_starts
from tilewise.search.space.levels.space import LevelSpace
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space
from tilewise.search.store import TrialStore
from tilewise.search.transfer.levels import near_levels
from tilewise.search.transfer.warm_start import warmed

PRIOR = 10


@dataclass(frozen=True)
class Beginning:
    """The model of a space, and points to try first.

    Attributes:
        model: of the space that is searched.
        starts: what near problems offer, the best first.
        prior: what the model offers; None where the study asks it itself.
    """

    model: Model
    starts: list[Point]
    prior: Sequence[Point] | None = None


def beginning(problem: Problem, target: Target, store: TrialStore) -> Beginning:
    """How to begin a search for a problem.

    Raises:
        UnsupportedError: no tuning spec covers the problem, for a target of IREE's.
    """
    if target.kind == "iree":
        model = LevelModel.of(LevelSpace(problem, target))
        return Beginning(model, near_levels(model.space, store), level_starts(model, PRIOR))
    space = Space(problem, with_rates(target, problem.element.name))
    return Beginning(*warmed(Model.shipped(space), store))
