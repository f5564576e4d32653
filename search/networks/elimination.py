"""The least sum of costs that depend on a few variables each, exactly.

Bucket elimination (Dechter, "Bucket elimination: a unifying framework for reasoning", 1999): the
variable whose neighbours have the fewest values together is taken out first, by its minimum for
each of their values. On a series-parallel graph no table has more than three variables, and this
is the dynamic programme that goes block by block.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.search.errors import ChoiceError

Costs = NDArray[np.float64]
MOST_ENTRIES = 1 << 24
"""Of one table: 128 MiB of costs."""


@dataclass(frozen=True)
class Factor:
    """What some variables cost together.

    Attributes:
        variables: their numbers, each once.
        costs: an axis for each; infinity where the values do not go together.
    """

    variables: tuple[int, ...]
    costs: Costs


@dataclass(frozen=True)
class _Eliminated:
    """A variable that is gone: the value that it takes for each of its neighbours' values."""

    variable: int
    neighbours: tuple[int, ...]
    best: NDArray[Any]


def minimise(
    sizes: Sequence[int], factors: Iterable[Factor], most_entries: int = MOST_ENTRIES
) -> tuple[float, tuple[int, ...]]:
    """The least sum of all factors, and a value for each variable that reaches it.

    Args:
        sizes: of the variables: each has the values 0 to size - 1.
        factors: over those variables.
        most_entries: that a table may have.

    Raises:
        ChoiceError: a table would have more entries, or all sums are infinite.
    """
    buckets = _Buckets(sizes, most_entries)
    constant = sum(map(buckets.add, factors), 0.0)
    gone = []
    for variable in buckets.order():
        eliminated, rest = buckets.eliminate(variable)
        gone.append(eliminated)
        constant += buckets.add(rest)
    if not np.isfinite(constant):
        raise ChoiceError("no choice of layouts fits all layers together")
    return float(constant), _values(sizes, gone)


def _values(sizes: Sequence[int], gone: Sequence[_Eliminated]) -> tuple[int, ...]:
    """Each variable's value, those that went last first: all that they depend on is known then."""
    values = [0] * len(sizes)
    for one in reversed(gone):
        values[one.variable] = int(one.best[tuple(values[i] for i in one.neighbours)])
    return tuple(values)


class _Buckets:
    """The factors that are left, by each of their variables.

    Args:
        sizes: of the variables; one with a single value is in no factor.
        most_entries: that a table may have.
    """

    def __init__(self, sizes: Sequence[int], most_entries: int) -> None:
        self._sizes = sizes
        self._most = most_entries
        self._factors: dict[int, Factor] = {}
        self._of: dict[int, set[int]] = {i: set() for i, size in enumerate(sizes) if size > 1}
        self._added = 0

    def add(self, factor: Factor) -> float:
        """Take a factor in; what it costs in any case where no variable is left in it."""
        free = [i for i, one in enumerate(factor.variables) if self._sizes[one] > 1]
        costs = factor.costs.reshape([factor.costs.shape[i] for i in free])
        if not free:
            return float(costs)
        kept = Factor(tuple(factor.variables[i] for i in free), costs)
        self._factors[self._added] = kept
        for variable in kept.variables:
            self._of[variable].add(self._added)
        self._added += 1
        return 0.0

    def order(self) -> Iterable[int]:
        """The variables, that of the smallest table next; each is eliminated before the next."""
        waiting = [(self._entries(variable), variable) for variable in self._of]
        heapq.heapify(waiting)
        while waiting:
            entries, variable = heapq.heappop(waiting)
            if variable not in self._of:
                continue
            if entries != (now := self._entries(variable)):
                heapq.heappush(waiting, (now, variable))
                continue
            neighbours = self._neighbours(variable)
            yield variable
            for one in neighbours:
                heapq.heappush(waiting, (self._entries(one), one))

    def eliminate(self, variable: int) -> tuple[_Eliminated, Factor]:
        """Take a variable out; the factor over its neighbours that stands for it."""
        neighbours = self._neighbours(variable)
        if (entries := self._entries(variable)) > self._most:
            raise ChoiceError(
                f"the choice is too wide: {len(neighbours) + 1} layouts depend on each other, a "
                f"table of {entries} entries where {self._most} are allowed; offer fewer layouts"
            )
        axes = (*neighbours, variable)
        total = np.zeros([self._sizes[one] for one in axes])
        for number in sorted(self._of.pop(variable)):
            factor = self._factors.pop(number)
            total += _spread(factor, axes)
            for one in factor.variables:
                if one != variable:
                    self._of[one].discard(number)
        best = total.argmin(axis=-1)
        return _Eliminated(variable, neighbours, best), Factor(neighbours, total.min(axis=-1))

    def _neighbours(self, variable: int) -> tuple[int, ...]:
        together = {one for number in self._of[variable] for one in self._factors[number].variables}
        return tuple(sorted(together - {variable}))

    def _entries(self, variable: int) -> int:
        around = prod(self._sizes[one] for one in self._neighbours(variable))
        return around * self._sizes[variable]


def _spread(factor: Factor, axes: tuple[int, ...]) -> Costs:
    """A factor's costs with the axes in another order, and axes of one where it has none."""
    order = sorted(range(len(factor.variables)), key=lambda i: axes.index(factor.variables[i]))
    costs = factor.costs.transpose(order)
    sizes = iter(costs.shape)
    return costs.reshape([next(sizes) if one in factor.variables else 1 for one in axes])
