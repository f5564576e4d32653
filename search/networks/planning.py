"""From a graph and times to a plan: variants by algorithms, the choice, and what it is worth."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from kernels.mlir.frontend.graph import Graph, Node, Size, Tensor, Use
from search.errors import ChoiceError
from search.networks.choice import Alternative, Chosen, Flow, Step, choose, conversions, priced
from search.networks.costs import Costs, CostsInBlocks, Timed
from search.networks.layouts import Layout, plain
from search.networks.plan import (
    SCHEMA,
    Plan,
    PlannedConversion,
    PlannedNode,
    PlannedTensor,
    PlannedUse,
    Totals,
)
from search.networks.variants import (
    Layouts,
    Variant,
    as_it_is,
    in_channel_blocks,
    in_order,
    needs_copy,
    variants,
)

LEAST_GAIN = 0.01  # of the time in the model's layouts: times of layers vary by as much
UNKNOWN = "no schedule of it is stored"
COPIED = "an operand lies in an order that a view hides; its copy is not priced"


@dataclass(frozen=True)
class Named:
    """What a plan is of.

    Attributes:
        model: the file's name.
        target: canonical.
        cache: hot or cold.
    """

    model: str
    target: str
    cache: str


@dataclass(frozen=True)
class _Way:
    """A variant with the schedule that computes it."""

    variant: Variant
    timed: Timed | None


def planned(graph: Graph, costs: Costs, named: Named, layouts: Layouts = "all") -> Plan:
    """The plan of the least time; where it gains less than `LEAST_GAIN`, the model's layouts.

    Nodes that are no problem, or that nobody has tuned, have their tensors as the model does. They
    take part in no total.

    Args:
        graph: of the model.
        costs: times of schedules and of conversions.
        named: what the plan is of.
        layouts: which are tried.
    """
    ways = [list(_ways(node, graph, costs, layouts)) for node in graph.nodes]
    _offer_orders(graph, ways)
    flow = _flow(graph, costs, ways)
    own = [_fastest(some, [way for way in some if _is_own(way, some[0])]) for some in ways]
    try:
        picks, is_exact = _worth_it(flow, choose(flow), tuple(own)), True
    except ChoiceError:
        picks, is_exact = tuple(own), False
    totals = Totals(
        priced(flow, picks), priced(flow, own), priced(flow, [_fastest(w, w) for w in ways])
    )
    taken = [some[pick] for some, pick in zip(ways, picks, strict=True)]
    made = _made(graph, taken)
    copies = tuple(
        PlannedConversion(tensor, _layout(wanted), flow.conversion(tensor, at, wanted))
        for tensor, at, wanted in conversions(flow, picks)
    )
    return Plan(
        SCHEMA, named.model, named.target, named.cache, is_exact,
        tuple(_node(node, graph, way) for node, way in zip(graph.nodes, taken, strict=True)),
        tuple(_tensor(one, made[i]) for i, one in enumerate(graph.tensors)),
        copies, totals,
    )  # fmt: skip


def _ways(node: Node, graph: Graph, costs: Costs, layouts: Layouts) -> Iterator[_Way]:
    """Each variant by each algorithm; the first of them has the layouts of the model."""
    if node.found is None or not costs.schedules(node.found.problem):
        yield _Way(as_it_is(node, graph), None)
        return
    for variant in variants(node, graph, layouts):
        assert variant.problem is not None
        for timed in costs.schedules(variant.problem):
            yield _Way(variant, timed)
    if layouts == "all" and isinstance(costs, CostsInBlocks):
        for variant in in_channel_blocks(node, graph):
            assert variant.problem is not None
            for timed in costs.in_blocks(variant.problem, variant.blocks):
                yield _Way(variant, timed)


def _offer_orders(graph: Graph, ways: list[list[_Way]]) -> None:
    """Let elementwise nodes follow the orders that contractions offer for tensors of one shape."""
    orders: dict[tuple[Size, ...], dict[Layout, None]] = {}
    for node, some in zip(graph.nodes, ways, strict=True):
        for way in some if node.found is not None else ():
            layouts = (*way.variant.reads, *way.variant.makes)
            for use, layout in zip((*node.reads, *node.makes), layouts, strict=True):
                is_whole = use.shape == graph.tensors[use.tensor].shape  # else of other axes
                if is_whole and not layout.halo:
                    orders.setdefault(use.shape, {})[layout] = None
    for node, some in zip(graph.nodes, ways, strict=True):
        if node.kind == "elementwise":
            for layout in orders.get(node.makes[0].shape, {}):
                variant = in_order(node, graph, layout)
                if variant is not None and variant != some[0].variant:
                    some.append(_Way(variant, None))


def _flow(graph: Graph, costs: Costs, ways: list[list[_Way]]) -> Flow:
    def conversion(tensor: int, made: Hashable, wanted: Hashable) -> float:
        one, at, to = graph.tensors[tensor], _layout(made), _layout(wanted)
        shape = tuple(size for size in one.shape if size is not None)
        if len(shape) != len(one.shape) or at.halo:
            return float("inf")  # nobody copies what has no size, or out of a halo
        return costs.conversion_us(shape, one.dtype, at, to)

    outside = {i: plain(tensor.shape) for i, tensor in enumerate(graph.tensors)}
    steps = tuple(
        Step(_numbers(node.reads), _numbers(node.makes), tuple(map(_alternative, some)))
        for node, some in zip(graph.nodes, ways, strict=True)
    )
    return Flow(
        steps,
        conversion,
        {i: outside[i] for i, tensor in enumerate(graph.tensors) if tensor.is_given},
        {i: outside[i] for i, tensor in enumerate(graph.tensors) if tensor.is_result},
    )


def _worth_it(flow: Flow, chosen: Chosen, own: tuple[int, ...]) -> tuple[int, ...]:
    """The picks of a choice; those for the model's layouts where it gains too little over them."""
    plain_us = priced(flow, own)
    return chosen.picks if chosen.cost < (1 - LEAST_GAIN) * plain_us else own


def _alternative(way: _Way) -> Alternative:
    time_us = 0.0 if way.timed is None else way.timed.time_us
    return Alternative(time_us, way.variant.reads, way.variant.makes)


def _numbers(uses: tuple[Use, ...]) -> tuple[int, ...]:
    return tuple(use.tensor for use in uses)


def _layout(value: Hashable) -> Layout:
    assert isinstance(value, Layout)
    return value


def _is_own(way: _Way, first: _Way) -> bool:
    return way.variant == first.variant


def _fastest(some: list[_Way], among: list[_Way]) -> int:
    return min((_alternative(way).cost, i) for i, way in enumerate(some) if way in among)[1]


def _made(graph: Graph, taken: list[_Way]) -> dict[int, Layout]:
    """The layout in which each tensor is made."""
    made = {i: plain(tensor.shape) for i, tensor in enumerate(graph.tensors) if tensor.is_given}
    for node, way in zip(graph.nodes, taken, strict=True):
        made |= dict(zip(_numbers(node.makes), way.variant.makes, strict=True))
    return made


def _node(node: Node, graph: Graph, way: _Way) -> PlannedNode:
    reads, makes = (
        tuple(
            PlannedUse(use.tensor, use.shape, use.role, layout)
            for use, layout in zip(uses, layouts, strict=True)
        )
        for uses, layouts in (
            (node.reads, way.variant.reads), (node.makes, way.variant.makes),
        )
    )  # fmt: skip
    return PlannedNode(
        node.kind, node.op, node.where, reads, makes, node.found, node.place, way.variant.problem,
        way.timed, _reason(node, graph, way),
    )  # fmt: skip


def _reason(node: Node, graph: Graph, way: _Way) -> str:
    if node.found is None:
        return node.reason
    if way.timed is None:
        return UNKNOWN
    return COPIED if needs_copy(node, graph) else ""


def _tensor(tensor: Tensor, layout: Layout) -> PlannedTensor:
    return PlannedTensor(tensor.shape, tensor.dtype, tensor.is_given, tensor.is_result, layout)
