"""Ways to do what is no contraction: in the orders of axes that contractions around it offer."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewise.kernels.mlir.frontend.graph import Graph, Node, Size
from tilewise.kernels.mlir.frontend.program import Action
from tilewise.search.networks.costs import Timed
from tilewise.search.networks.layouts import Layout, plain
from tilewise.search.networks.variants import Variant, in_order

Orders = dict[tuple[Size, ...], dict[Layout, None]]
"""Layouts that are offered for tensors of a shape."""


@dataclass(frozen=True)
class Way:
    """A variant with the schedule that computes it, or with the time of its pass.

    Attributes:
        variant: what is computed, and the layouts that it asks for.
        timed: the schedule, of a contraction that somebody has tuned.
        order: in which anything else reads its tensors where that is not the model's.
        pass_us: of the pass that the node ends, else 0; infinity where nobody runs it so.
    """

    variant: Variant
    timed: Timed | None = None
    order: Layout | None = None
    pass_us: float = 0.0


def offer_orders(graph: Graph, ways: list[list[Way]], actions: Sequence[Action]) -> None:
    """Let passes follow the orders that contractions offer for tensors of one shape.

    Args:
        graph: of the model.
        ways: of each node; those of passes become longer.
        actions: what each node does; none where that is not known, and elementwise nodes alone
            follow.
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


def in_order_of_axes(node: Node, action: Action, graph: Graph, layout: Layout) -> Variant | None:
    """A pool, a pad or a sum that reads its tensor in an order; None if it cannot."""
    if len(node.reads) != 1 or layout != Layout(layout.order):
        return None
    read, made = node.reads[0], node.makes[0]
    if any(use.shape != graph.tensors[use.tensor].shape for use in (read, made)):
        return None
    if set(layout.order) != {axis for axis, size in enumerate(read.shape) if size != 1}:
        return None
    if action.window is not None or action.pad is not None:
        pairs = list(zip(read.shape, made.shape, strict=True))
        if any(before == 1 != behind for before, behind in pairs):
            return None  # an axis that the layout has no place for
        to = Layout(tuple(axis for axis in layout.order if made.shape[axis] != 1))
        return Variant(None, (layout,), (to,))
    if action.sum is not None:
        left = [axis for axis in layout.order if axis not in action.sum.axes]
        return Variant(None, (layout,), (plain(made.shape),)) if left == sorted(left) else None
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
