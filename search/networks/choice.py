"""Choose an alternative for each step of a flow so that steps and conversions cost the least.

A tensor is made in one layout; each other layout that is read is converted from it once. The
choice is a dynamic program over the steps in order. Its state is the layouts that exist of each
tensor with a later reader that may choose. It is exact unless there are more than `MOST_STATES`
after a step, of which the cheapest are kept.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import inf
from operator import itemgetter

from tilewise.search.errors import ChoiceError

MOST_STATES = 1024


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
    """Steps in an executable order, and the cost of conversions between them.

    `conversion` is the cost of having a tensor in another layout as well. `given` are layouts of
    tensors that no step makes, `wanted` those that are required in the end.
    """

    steps: tuple[FlowStep, ...]
    conversion: Callable[[int, Hashable, Hashable], float]
    given: dict[int, Hashable]
    wanted: dict[int, Hashable]


@dataclass(frozen=True)
class ChosenFlow:
    """A choice and its cost; `is_exact` if no other costs less."""

    cost: float
    picks: tuple[int, ...]
    is_exact: bool


def choose(flow: Flow, most_states: int = MOST_STATES) -> ChosenFlow:
    """Return the cheapest choice that was found.

    Raises ChoiceError if no layouts fit together.
    """
    needs = _Needs(flow)
    first, cost = dict[int, _Had](), 0.0
    for tensor, layout in flow.given.items():
        cost += needs.made(tensor, layout, first)
    states, is_exact = {needs.state(first, -1): cost}, True
    came: list[dict[_State, tuple[_State, int]]] = []
    for number in range(len(flow.steps)):
        best, back = dict[_State, float](), dict[_State, tuple[_State, int]]()
        for before, spent in states.items():
            for pick, after, cost in needs.ways(number, before):
                total = spent + cost
                if total < best.get(after, inf):
                    best[after], back[after] = total, (before, pick)
        if len(best) > most_states:
            is_exact = False
            best = dict(nsmallest(most_states, best.items(), key=itemgetter(1)))
        states = best
        came.append(back)
    if not states:
        raise ChoiceError("no choice of layouts fits all layers together")
    state = min(states, key=states.__getitem__)
    cost, picks = states[state], list[int]()
    for back in reversed(came):
        state, pick = back[state]
        picks.append(pick)
    return ChosenFlow(cost, tuple(reversed(picks)), is_exact)


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


_Had = tuple[Hashable, frozenset[Hashable]]
"""The layout in which a tensor is made, and those to which it was converted."""
_State = tuple[tuple[int, _Had], ...]


class _Needs:
    """What steps need of each tensor: layouts that are fixed, and layouts that readers choose."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._fixed = {tensor: {layout} for tensor, layout in flow.wanted.items()}
        self._last: dict[int, dict[Hashable, int]] = {}
        for number, step in enumerate(flow.steps):
            for i, tensor in enumerate(step.reads):
                layouts = {one.reads[i] for one in step.alternatives}
                if len(layouts) == 1:
                    self._fixed.setdefault(tensor, set()).update(layouts)
                else:  # the last step that may read the tensor in each layout
                    self._last.setdefault(tensor, {}).update(dict.fromkeys(layouts, number))
        self._ends = {tensor: max(steps.values()) for tensor, steps in self._last.items()}

    def made(self, tensor: int, layout: Hashable, had: dict[int, _Had]) -> float:
        """Add a tensor to what exists; return the cost of the conversions that are certain."""
        if tensor in self._ends:
            had[tensor] = layout, frozenset()
        fixed = self._fixed.get(tensor, set()) - {layout}
        return sum(self._flow.conversion(tensor, layout, one) for one in fixed)

    def ways(self, number: int, before: _State) -> Iterator[tuple[int, _State, float]]:
        """Yield for each alternative of a step its number, the state after it, and its cost."""
        step = self._flow.steps[number]
        for pick, way in enumerate(step.alternatives):
            had, cost = dict(before), way.cost
            for tensor, layout in zip(step.reads, way.reads, strict=True):
                if layout in self._fixed.get(tensor, ()):
                    continue
                made, others = had[tensor]
                if layout != made and layout not in others:
                    cost += self._flow.conversion(tensor, made, layout)
                    had[tensor] = made, others | {layout}
            for tensor, layout in zip(step.makes, way.makes, strict=True):
                cost += self.made(tensor, layout, had)
            yield pick, self.state(had, number), cost

    def state(self, had: dict[int, _Had], number: int) -> _State:
        """Return what matters to the readers after a step."""
        return tuple(
            (tensor, (made, frozenset(one for one in others if self._last[tensor][one] > number)))
            for tensor, (made, others) in had.items()
            if self._ends[tensor] > number
        )
