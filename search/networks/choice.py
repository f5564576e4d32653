"""Choose an alternative for each step of a flow so that steps and conversions cost the least.

A tensor is made in one layout; each other layout that is read is converted from it once. The least
sum of costs that depend on a few layouts each is found exactly by bucket elimination (Dechter,
"Bucket elimination: a unifying framework for reasoning", 1999): the variable whose neighbours have
the fewest values together is eliminated first. On a series-parallel graph no table has more than
three variables, and this is block-by-block dynamic programming.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
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
    """A joint cost of some variables: one axis per variable, infinity for impossible values."""

    variables: tuple[int, ...]
    costs: Costs


@dataclass(frozen=True)
class _Eliminated:
    """An eliminated variable and its best value for each of its neighbours' values."""

    variable: int
    neighbours: tuple[int, ...]
    best: NDArray[Any]


def minimise(
    sizes: Sequence[int], factors: Iterable[Factor], most_entries: int = MOST_ENTRIES
) -> tuple[float, tuple[int, ...]]:
    """Return the least sum of all factors and a value for each variable that reaches it.

    Each variable has the values 0 to size - 1. Raises ChoiceError if a table would have more than
    `most_entries`, or all sums are infinite.
    """
    buckets = _Buckets(sizes)
    for factor in factors:
        buckets.add(factor)
    entries = {variable: buckets.entries(variable) for variable in buckets.factors}
    gone = list[_Eliminated]()
    while entries:
        variable = min(entries, key=lambda one: (entries[one], one))
        if (needed := entries.pop(variable)) > most_entries:
            raise ChoiceError(
                f"the choice is too wide: layouts depend on each other in a table of {needed} "
                f"entries where {most_entries} are allowed; offer fewer layouts"
            )
        gone.append(buckets.eliminate(variable))
        entries |= {one: buckets.entries(one) for one in gone[-1].neighbours}
    if not np.isfinite(buckets.constant):
        raise ChoiceError("no choice of layouts fits all layers together")
    values = [0] * len(sizes)
    for one in reversed(gone):
        values[one.variable] = int(one.best[tuple(values[i] for i in one.neighbours)])
    return buckets.constant, tuple(values)


class _Buckets:
    """The remaining factors by each of their free variables, and the sum of those without any."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self.factors: dict[int, list[Factor]] = {i: [] for i, n in enumerate(sizes) if n > 1}
        self.constant = 0.0

    def add(self, factor: Factor) -> None:
        """Add a factor."""
        free = [i for i, one in enumerate(factor.variables) if self._sizes[one] > 1]
        costs = factor.costs.reshape([factor.costs.shape[i] for i in free])
        kept = Factor(tuple(factor.variables[i] for i in free), costs)
        for variable in kept.variables:
            self.factors[variable].append(kept)
        if not free:
            self.constant += float(costs)

    def entries(self, variable: int) -> int:
        """Return the entries of the table that eliminating a variable needs."""
        return prod(self._sizes[one] for one in {variable, *self._neighbours(variable)})

    def eliminate(self, variable: int) -> _Eliminated:
        """Replace all factors of a variable by one over its neighbours."""
        neighbours = self._neighbours(variable)
        axes = (*neighbours, variable)
        total = np.zeros([self._sizes[one] for one in axes])
        for factor in self.factors.pop(variable):
            total += _spread(factor, axes)
        for one in neighbours:
            self.factors[one] = [f for f in self.factors[one] if variable not in f.variables]
        self.add(Factor(neighbours, total.min(axis=-1)))
        return _Eliminated(variable, neighbours, total.argmin(axis=-1))

    def _neighbours(self, variable: int) -> tuple[int, ...]:
        together = {one for factor in self.factors[variable] for one in factor.variables}
        return tuple(sorted(together - {variable}))


def _spread(factor: Factor, axes: tuple[int, ...]) -> Costs:
    """Return a factor's costs with its axes reordered and broadcast."""
    order = sorted(range(len(factor.variables)), key=lambda i: axes.index(factor.variables[i]))
    costs = factor.costs.transpose(order)
    sizes = iter(costs.shape)
    return costs.reshape([next(sizes) if one in factor.variables else 1 for one in axes])


MOST_OPTIONAL = 12  # layouts of one tensor that some reader may or may not want
Fixed = frozenset[Hashable]


@dataclass(frozen=True)
class Alternative:
    """A way to do a step: its own cost, and the layouts that it reads and makes."""

    cost: float
    reads: tuple[Hashable, ...]
    makes: tuple[Hashable, ...]


@dataclass(frozen=True)
class FlowStep:
    """A step that reads and makes tensors, in one of several ways."""

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True)
class Flow:
    """Steps and the cost of conversions between them.

    `conversion` is the cost of having a tensor in another layout as well. `given` are layouts of
    tensors that no step makes, `wanted` those that are required in the end.
    """

    steps: tuple[FlowStep, ...]
    conversion: Callable[[int, Hashable, Hashable], float]
    given: dict[int, Hashable]
    wanted: dict[int, Hashable]


@dataclass(frozen=True)
class ChosenFlow:
    """A choice and its cost."""

    cost: float
    picks: tuple[int, ...]


def choose(flow: Flow, most_entries: int = MOST_ENTRIES) -> ChosenFlow:
    """Return the cheapest choice.

    Raises ChoiceError if too many layouts depend on each other, or none fit together.
    """
    variables = _Variables(flow)
    factors = [*variables.of_steps(), *variables.of_tensors()]
    cost, values = minimise(variables.sizes, factors, most_entries)
    return ChosenFlow(cost, tuple(variables.pick(i, values) for i in range(len(flow.steps))))


def conversions(flow: Flow, picks: Sequence[int]) -> list[tuple[int, Hashable, Hashable]]:
    """Return the conversions of a choice: tensor, its layout, the wanted one."""
    made = dict(flow.given)
    wanted: dict[tuple[int, Hashable], None] = {}
    for step, pick in zip(flow.steps, picks, strict=True):
        taken = step.alternatives[pick]
        made |= dict(zip(step.makes, taken.makes, strict=True))
        wanted |= dict.fromkeys(zip(step.reads, taken.reads, strict=True))
    wanted |= dict.fromkeys(flow.wanted.items())
    return [(tensor, made[tensor], layout) for tensor, layout in wanted if layout != made[tensor]]


class _Variables:
    """The layouts of a flow as variables: of each tensor as made, and as read by each step."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._layouts: list[list[Hashable]] = []
        self._made = {t: self._variable([layout]) for t, layout in flow.given.items()}
        self._reads: list[list[int]] = []
        self._readers: dict[int, list[int]] = {}
        for step in flow.steps:
            offered = zip(*(one.makes for one in step.alternatives), strict=True)
            for tensor, layouts in zip(step.makes, offered, strict=True):
                self._made[tensor] = self._variable(layouts)
        for step in flow.steps:
            asked = zip(*(one.reads for one in step.alternatives), strict=True)
            self._reads.append([
                self._reader(tensor, layouts)
                for tensor, layouts in zip(step.reads, asked, strict=True)
            ])  # fmt: skip
        for tensor, layout in flow.wanted.items():
            self._reader(tensor, [layout])

    @property
    def sizes(self) -> list[int]:
        """The number of layouts of each variable."""
        return [len(layouts) for layouts in self._layouts]

    def of_steps(self) -> Iterator[Factor]:
        """Yield each step's cost by the layouts around it."""
        for number, step in enumerate(self._flow.steps):
            around = self._around(number)
            free = tuple(one for one in around if self._is_free(one))
            costs = np.full([len(self._layouts[one]) for one in free], np.inf)
            for one in step.alternatives:
                at = self._place(around, (*one.reads, *one.makes))
                costs[at] = min(costs[at], one.cost)
            yield Factor(free, costs)

    def of_tensors(self) -> Iterator[Factor]:
        """Yield the cost of each tensor's conversions.

        A further variable is the set of layouts of a tensor, which readers refer to.
        """
        for tensor, readers in self._readers.items():
            fixed = frozenset(self._layouts[one][0] for one in readers if not self._is_free(one))
            free = [one for one in readers if self._is_free(one)]
            made, sets = self._made[tensor], self._sets(tensor, fixed, free)
            had = self._variable(sets)
            costs = [[self._conversions(tensor, one, some) for some in sets]
                     for one in self._layouts[made]]  # fmt: skip
            yield Factor((made, had), np.array(costs))
            for reader in free:
                lacks = [[layout not in some for some in sets] for layout in self._layouts[reader]]
                yield Factor((reader, had), np.where(lacks, np.inf, 0.0))

    def pick(self, number: int, values: Sequence[int]) -> int:
        """Return the alternative of a step that the variables' values select."""
        around = self._around(number)
        wanted = tuple(values[one] for one in around if self._is_free(one))
        fitting = (
            (one.cost, i)
            for i, one in enumerate(self._flow.steps[number].alternatives)
            if self._place(around, (*one.reads, *one.makes)) == wanted
        )
        return min(fitting)[1]

    def _around(self, number: int) -> tuple[int, ...]:
        makes = (self._made[tensor] for tensor in self._flow.steps[number].makes)
        return (*self._reads[number], *makes)

    def _place(self, around: Sequence[int], layouts: Sequence[Hashable]) -> tuple[int, ...]:
        """Return the index of layouts in the table of free variables."""
        return tuple(
            self._layouts[one].index(layout)
            for one, layout in zip(around, layouts, strict=True)
            if self._is_free(one)
        )

    def _is_free(self, variable: int) -> bool:
        return len(self._layouts[variable]) > 1

    def _variable(self, layouts: Sequence[Hashable]) -> int:
        self._layouts.append(list(dict.fromkeys(layouts)))
        return len(self._layouts) - 1

    def _reader(self, tensor: int, layouts: Sequence[Hashable]) -> int:
        made = self._variable(layouts)
        self._readers.setdefault(tensor, []).append(made)
        return made

    def _conversions(self, tensor: int, made: Hashable, had: Fixed) -> float:
        return sum(self._flow.conversion(tensor, made, one) for one in had if one != made)

    def _sets(self, tensor: int, fixed: Fixed, free: Sequence[int]) -> list[Fixed]:
        """Return the sets of layouts that a tensor may be wanted in, all with the fixed ones."""
        asked = dict.fromkeys(layout for one in free for layout in self._layouts[one])
        optional = [layout for layout in asked if layout not in fixed]
        if len(optional) > MOST_OPTIONAL:
            raise ChoiceError(
                f"tensor {tensor} is read in any of {len(optional)} layouts, of which "
                f"{MOST_OPTIONAL} are allowed; offer fewer layouts"
            )
        return [
            fixed.union(some)
            for count in range(len(optional) + 1)
            for some in combinations(optional, count)
        ]
