"""Make a plan from a graph and times: variants by algorithm, their choice, and its gain."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Protocol

from tilewise.kernels.mlir.frontend.graph import Graph, Node, Size, TensorUse
from tilewise.kernels.mlir.frontend.program import Action, Outline
from tilewise.search.errors import ChoiceError
from tilewise.search.networks.choice import Alternative, Flow, FlowStep, choose, conversions
from tilewise.search.networks.costs import LayerTimes, Timed
from tilewise.search.networks.plan import (
    SCHEMA,
    Plan,
    PlannedConversion,
    PlannedNode,
    PlannedPass,
    PlannedTensor,
    PlannedUse,
    Totals,
)
from tilewise.search.networks.request import Layouts, PlanRequest
from tilewise.search.networks.variants import (
    ProblemVariant,
    TensorLayout,
    as_it_is,
    in_order,
    needs_copy,
    plain,
    variants,
)

Orders = dict[tuple[Size, ...], dict[TensorLayout, None]]
"""Layouts that are offered for tensors of a shape."""


@dataclass(frozen=True)
class Way:
    """A variant with its schedule or pass time.

    Attributes:
        order: of the tensors of a pass, where not the model's.
        pass_us: time of the pass that the node ends, else 0; infinity if it cannot run so.
    """

    variant: ProblemVariant
    timed: Timed | None = None
    order: TensorLayout | None = None
    pass_us: float = 0.0


def offer_orders(graph: Graph, ways: list[list[Way]], actions: Sequence[Action]) -> None:
    """Let passes follow the layouts that contractions offer for tensors of one shape.

    Without `actions` only elementwise nodes follow.
    """
    orders = _of_contractions(graph, ways)
    for number, (node, some) in enumerate(zip(graph.nodes, ways, strict=True)):
        if node.kind == "contraction" or len(node.makes) != 1:
            continue
        action = actions[number] if actions else Action()
        shape = node.makes[0].shape if node.kind == "elementwise" or not node.reads else (
            node.reads[0].shape)  # fmt: skip
        for layout in tuple(orders.get(shape, ())):
            variant = in_order(node, graph, layout) if node.kind == "elementwise" else None
            variant = variant or in_order_of_axes(node, action, graph, layout)
            if variant is not None and variant != some[0].variant:
                some.append(Way(variant, order=layout))
                orders.setdefault(node.makes[0].shape, {})[variant.makes[0]] = None


def in_order_of_axes(
    node: Node, action: Action, graph: Graph, layout: TensorLayout
) -> ProblemVariant | None:
    """Return a pool, pad or sum with its tensor in a layout; None if it cannot."""
    if len(node.reads) != 1 or layout != TensorLayout(layout.order):
        return None
    read, made = node.reads[0], node.makes[0]
    if any(use.shape != graph.tensors[use.tensor].shape for use in (read, made)):
        return None
    if set(layout.order) != {axis for axis, size in enumerate(read.shape) if size != 1}:
        return None
    if action.window is not None or action.pad is not None:
        pairs = zip(read.shape, made.shape, strict=True)
        if any(before == 1 != behind for before, behind in pairs):
            return None  # an axis that the layout has no place for
        to = TensorLayout(tuple(axis for axis in layout.order if made.shape[axis] != 1))
        return ProblemVariant(None, (layout,), (to,))
    if action.sum is not None:
        left = [axis for axis in layout.order if axis not in action.sum.axes]
        if left == sorted(left):
            return ProblemVariant(None, (layout,), (plain(made.shape),))
    return None


def _of_contractions(graph: Graph, ways: list[list[Way]]) -> Orders:
    orders: Orders = {}
    for node, some in zip(graph.nodes, ways, strict=True):
        for way in some if node.found is not None else ():
            layouts = (*way.variant.reads, *way.variant.makes)
            for use, layout in zip((*node.reads, *node.makes), layouts, strict=True):
                is_whole = use.shape == graph.tensors[use.tensor].shape  # else of other axes
                if is_whole and not layout.halo:
                    orders.setdefault(use.shape, {})[layout] = None
    return orders


Conversion = Callable[[int, Hashable, Hashable], float]
LEAST_GAIN = 0.01  # of the time in the model's layouts: times of layers vary by as much
UNKNOWN = "no schedule of it is stored"
COPIED = "an operand lies in an order that a view hides; its copy is not priced"


class Passes(Protocol):
    """Times of passes of a model (`tilewise.search.networks.pass_times.PassTimes`)."""

    outline: Outline

    def of(self, plan: Plan) -> Iterable[PlannedPass]:
        """Return the passes of a plan that can run."""
        ...


@dataclass(frozen=True)
class _Choice:
    """The alternatives of all nodes."""

    graph: Graph
    request: PlanRequest
    ways: list[list[Way]]
    passes: Passes | None

    def plan(self, picks: Sequence[int], conversion: Conversion) -> Plan:
        """Return the plan of a way for each node, without totals."""
        taken = [some[pick] for some, pick in zip(self.ways, picks, strict=True)]
        made, flow = _made(self.graph, taken), _flow(self.graph, self.ways, conversion)
        copies = tuple(
            PlannedConversion(tensor, _layout(wanted), conversion(tensor, at, wanted))
            for tensor, at, wanted in conversions(flow, picks)
        )
        request = self.request
        plan = Plan(
            SCHEMA, request.name or "", request.target, request.cache, True,
            tuple(map(_node, self.graph.nodes, repeat(self.graph), taken)),
            tuple(PlannedTensor(**vars(one), layout=made[i])
                  for i, one in enumerate(self.graph.tensors)),
            copies, Totals(0.0, 0.0, 0.0), accuracy=request.accuracy,
        )  # fmt: skip
        if self.passes is None:
            return plan
        passes = tuple(self.passes.of(plan))
        done = {number for one in passes for number in one.nodes}
        nodes = tuple(
            replace(node, reason="") if number in done else node  # a pool that is a pass, say
            for number, node in enumerate(plan.nodes)
        )
        return replace(plan, nodes=nodes, passes=passes)


def planned(
    graph: Graph, costs: LayerTimes, request: PlanRequest, passes: Passes | None = None
) -> Plan:
    """Return the fastest plan, or the model's layouts if it gains less than `LEAST_GAIN`.

    Nodes that are neither tuned nor passes keep the model's layouts and count in no total. Without
    `passes` all passes count as free.
    """
    ways = [list(_ways(node, graph, costs, request.layouts)) for node in graph.nodes]
    offer_orders(graph, ways, () if passes is None else passes.outline.actions)
    own = [_fastest(some, [way for way in some if way.variant == some[0].variant]) for some in ways]
    choice = _Choice(graph, request, ways, passes)
    kept = {} if passes is None else _kept(choice, _with_times(choice, own))
    conversion = _conversion(graph, costs, kept)
    flow = _flow(graph, ways, conversion)
    plain_plan = choice.plan(own, conversion)
    chosen = choose(flow)
    best = choice.plan(chosen.picks, conversion)
    plain_us, best_us = _total_us(plain_plan), _total_us(best)
    if not best_us < (1 - LEAST_GAIN) * plain_us:
        best, best_us = plain_plan, plain_us
    alone_us = _total_us(choice.plan(_alone(flow, ways), conversion))
    return replace(best, is_exact=chosen.is_exact, totals=Totals(best_us, plain_us, alone_us))


def _ways(node: Node, graph: Graph, costs: LayerTimes, layouts: Layouts) -> Iterator[Way]:
    """Yield each variant by each algorithm; the first has the model's layouts."""
    if node.found is None or not costs.schedules(node.found.problem):
        yield Way(as_it_is(node, graph))
        return
    for variant in variants(node, graph, layouts):
        assert variant.problem is not None
        for timed in costs.schedules(variant.problem):
            yield Way(variant, timed)


def _with_times(choice: _Choice, own: list[int]) -> tuple[PlannedPass, ...]:
    """Set the times of passes in each order, with all that can follow it."""
    ways, nothing = choice.ways, lambda _tensor, _made, _wanted: 0.0
    found = choice.plan(own, nothing).passes
    known = {number for one in found for number in one.nodes}
    orders = dict.fromkeys(way.order for some in ways for way in some)
    for order in orders:
        picks = [_of_order(some, order, pick) for some, pick in zip(ways, own, strict=True)]
        made = found if order is None else choice.plan(picks, nothing).passes
        times = {number: 0.0 for one in made for number in one.nodes}
        times |= {one.nodes[-1]: one.time_us for one in made}
        for number in known:
            if order is None or picks[number] != own[number]:
                way = ways[number][picks[number]]
                time_us = times.get(number, float("inf"))
                ways[number][picks[number]] = replace(way, pass_us=time_us)
    return found


def _of_order(some: list[Way], order: TensorLayout | None, own: int) -> int:
    return next((i for i, way in enumerate(some) if order is not None and way.order == order), own)


def _kept(choice: _Choice, passes: Iterable[PlannedPass]) -> dict[int, set[Hashable]]:
    """Return, for tensors within one pass, the layouts that all readers offer.

    They must not be converted, because the pass has one time for all of its nodes.
    """
    graph, found = choice.graph, dict[int, set[Hashable]]()
    for one in passes:
        for tensor in (use.tensor for number in one.nodes for use in graph.nodes[number].makes):
            readers = graph.readers_of(tensor)
            if readers and set(readers) <= set(one.nodes) and not graph.tensors[tensor].is_result:
                wanted = [
                    {way.variant.reads[i] for way in choice.ways[reader]}
                    for reader in readers
                    for i, use in enumerate(graph.nodes[reader].reads) if use.tensor == tensor
                ]  # fmt: skip
                found[tensor] = set.intersection(*map(set[Hashable], wanted))
    return found


def _conversion(graph: Graph, costs: LayerTimes, kept: dict[int, set[Hashable]]) -> Conversion:
    def conversion(tensor: int, made: Hashable, wanted: Hashable) -> float:
        one, at, to = graph.tensors[tensor], _layout(made), _layout(wanted)
        shape = tuple(size for size in one.shape if size is not None)
        if made in kept.get(tensor, ()) or len(shape) != len(one.shape) or at.halo:
            return float("inf")  # nobody copies inside a pass, what has no size, or out of a halo
        return costs.conversion_us(shape, one.dtype, at, to)

    return conversion


def _flow(graph: Graph, ways: list[list[Way]], conversion: Conversion) -> Flow:
    outside = {i: plain(tensor.shape) for i, tensor in enumerate(graph.tensors)}
    steps = tuple(
        FlowStep(_numbers(node.reads), _numbers(node.makes), tuple(map(_alternative, some)))
        for node, some in zip(graph.nodes, ways, strict=True)
    )
    return Flow(
        steps,
        conversion,
        {i: outside[i] for i, tensor in enumerate(graph.tensors) if tensor.is_given},
        {i: outside[i] for i, tensor in enumerate(graph.tensors) if tensor.is_result},
    )


def _alone(flow: Flow, ways: list[list[Way]]) -> list[int]:
    """Return the fastest way of each contraction and the cheapest other ways between."""
    fastest = [_fastest(some, some) for some in ways]
    steps = tuple(
        step if some[0].timed is None else replace(step, alternatives=(step.alternatives[pick],))
        for step, some, pick in zip(flow.steps, ways, fastest, strict=True)
    )
    try:
        picks = choose(replace(flow, steps=steps)).picks
    except ChoiceError:
        return [pick if some[0].timed else 0 for some, pick in zip(ways, fastest, strict=True)]
    return [fast if some[0].timed else pick
            for some, fast, pick in zip(ways, fastest, picks, strict=True)]  # fmt: skip


def _total_us(plan: Plan) -> float:
    layers = sum(node.schedule.time_us for node in plan.nodes if node.schedule is not None)
    copies = sum(one.time_us for one in plan.conversions)
    return layers + copies + sum(one.time_us for one in plan.passes)


def _alternative(way: Way) -> Alternative:
    time_us = way.pass_us if way.timed is None else way.timed.time_us
    return Alternative(time_us, way.variant.reads, way.variant.makes)


def _numbers(uses: tuple[TensorUse, ...]) -> tuple[int, ...]:
    return tuple(use.tensor for use in uses)


def _layout(value: Hashable) -> TensorLayout:
    assert isinstance(value, TensorLayout)
    return value


def _fastest(some: list[Way], among: list[Way]) -> int:
    return min((_alternative(way).cost, i) for i, way in enumerate(some) if way in among)[1]


def _made(graph: Graph, taken: list[Way]) -> dict[int, TensorLayout]:
    """Return the layout in which each tensor is made."""
    made = {i: plain(tensor.shape) for i, tensor in enumerate(graph.tensors) if tensor.is_given}
    for node, way in zip(graph.nodes, taken, strict=True):
        made |= dict(zip(_numbers(node.makes), way.variant.makes, strict=True))
    return made


def _node(node: Node, graph: Graph, way: Way) -> PlannedNode:
    reads, makes = (
        tuple(PlannedUse(**vars(use), layout=one) for use, one in zip(uses, layouts, strict=True))
        for uses, layouts in ((node.reads, way.variant.reads), (node.makes, way.variant.makes))
    )
    return PlannedNode(
        node.kind, node.op, node.where, reads, makes, node.found, node.place, way.variant.problem,
        way.timed, _reason(node, graph, way),
    )  # fmt: skip


def _reason(node: Node, graph: Graph, way: Way) -> str:
    if node.found is None:
        return node.reason
    if way.timed is None:
        return UNKNOWN
    return COPIED if needs_copy(node, graph) else ""
