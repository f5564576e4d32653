"""Where the next point comes from: samplers by name.

`surrogate` (the default) models the speed from what was timed; `local` climbs from the best;
`grid` walks over everything; the others are Optuna's. Several points can be asked for before
the first is learnt about: none of them depends on an answer to its last question.
"""

from collections.abc import Callable
from math import gcd
from typing import Protocol

from search.model.analytical import Model
from search.records import TrialRecord
from search.space.points import Point
from search.space.space import Space

GOLDEN = 0.6180339887498949

IsFree = Callable[[Point], bool]
"""Whether a point means a legal schedule that was neither tried nor proposed yet."""


class Sampler(Protocol):
    """Proposes points and learns from finished trials."""

    def propose(self, is_free: IsFree) -> Point:
        """The next point to try. One that is not free is replaced by one near it."""
        ...

    def learn(self, trial: TrialRecord) -> None:
        """Take in one finished trial, whoever proposed it."""
        ...


def make_sampler(name: str, model: Model, seed: int, trials: int) -> Sampler:
    """The sampler called `name`, for so many trials; BudgetError without a package for it."""
    if name == "grid":
        return GridWalk(model.space, seed)
    if name == "local":
        from search.samplers.local import LocalSearch

        return LocalSearch(model.space, seed)
    if name == "surrogate":
        from search.samplers.surrogate import Surrogate

        return Surrogate(model, seed, trials)
    from search.samplers.optuna_sampler import OptunaSampler

    return OptunaSampler(name, model.space, seed)


class GridWalk:
    """Every point once, by strides of the golden ratio, so that any prefix is spread out."""

    def __init__(self, space: Space, seed: int) -> None:
        self._parameters = space.parameters
        self._size = space.size
        self._stride = max(1, int(self._size * GOLDEN))
        while gcd(self._stride, self._size) != 1:
            self._stride += 1
        self._at = seed % self._size

    def propose(self, _is_free: IsFree | None = None) -> Point:
        """The next point of the walk."""
        self._at = (self._at + self._stride) % self._size
        index, point = self._at, Point()
        for parameter in self._parameters:
            index, digit = divmod(index, len(parameter.values))
            point[parameter.name] = parameter.values[digit]
        return point

    def learn(self, trial: TrialRecord) -> None:
        """A walk learns nothing."""
